"""The presets of vLLM 0.1.7 and 0.2.0 against the decode steps that Llumnix (OSDI 2024, Figure 10) prints."""

import pytest

from hwmodels.step_times.step_time import pieces_s
from servetwin.assemble.hardware import hardware_of
from servetwin.config.compose.compose import load_config

# 8,192 tokens of context in 32 requests and in one: milliseconds.
FIGURE_10_DECODE_MS = [
    ("llama_7b", 1, 32, 46.8),
    ("llama_7b", 1, 1, 43.6),
    ("llama_30b", 4, 32, 65.7),
    ("llama_30b", 4, 1, 65.8),
]


@pytest.mark.parametrize(("model", "tp", "requests", "printed_ms"), FIGURE_10_DECODE_MS)
def test_one_overhead_meets_all_decode_steps(model: str, tp: int, requests: int, printed_ms: float) -> None:
    """Figure 10 was measured on 0.2.0."""
    words = [
        "engine=vllm_0_2_0",
        f"model={model}",
        f"model.tp={tp}",
        "cluster=llumnix",
        "trace=poisson",
        "out=unused",
    ]
    config = load_config(words, "simulate")
    (hardware,) = hardware_of(config).values()
    step = hardware.step
    attention_s = pieces_s(step.decode_attention(requests), 8192)
    assert attention_s is not None
    assert (step.dense_s(0, 0, requests) + attention_s) * 1e3 == pytest.approx(printed_ms, rel=0.07)


def test_what_0_2_0_did_away_with() -> None:
    """Sampling sequence by sequence, and the text of all that was generated, anew in every step."""
    words = ["model=llama_7b", "cluster=llumnix", "trace=poisson", "out=unused"]
    both = [load_config([f"engine={name}", *words], "simulate") for name in ("vllm_0_1_7", "vllm_0_2_0")]
    old, new = [next(iter(hardware_of(config).values())) for config in both]
    assert old.overhead.step_s == new.overhead.step_s
    assert old.step.dense_s(0, 0, 32) - new.step.dense_s(0, 0, 32) == pytest.approx(32 * 6.0e-4)
    assert (old.rows.output_token, new.rows.output_token) == (230 << 24, 0)


def test_the_limits_are_those_of_2023() -> None:
    engine = load_config(
        ["engine=vllm_0_1_7", "model=llama_7b", "cluster=llumnix", "trace=poisson", "out=unused"], "simulate"
    ).engine
    assert (engine.version, engine.max_num_batched_tokens, engine.max_num_seqs) == ("0.1.7", 2560, 256)
    assert engine.watermark == 0.01 and not engine.overhead.cuda_graphs
