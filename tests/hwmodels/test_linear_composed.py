"""Coefficients composed of vLLM 0.19.0's tables: one family per GPU, as the command prints, long prompts."""

import os
from pathlib import Path

import pytest

from hwmodels.catalogue import LINEAR_COMPOSED_FILE, load_gpu, load_llm, read_yaml
from hwmodels.step_times.linear_catalogue import LinearKey, linear_keys, linear_step_model
from hwmodels.step_times.linear_fit import linear_model
from hwmodels.step_times.select import linear_key, step_model
from hwmodels.step_times.step_time import StepModel, pieces_s
from scripts.fit_linear_catalogue import MOST_P95_PERCENT, SOURCES, entry_text, profile_of

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
ENTRIES = read_yaml(LINEAR_COMPOSED_FILE)
CATALOGUE = Path(__file__).parents[2] / "hwmodels" / "catalogue" / LINEAR_COMPOSED_FILE


def decode_s(model: StepModel, n: int, context: int) -> float:
    seconds = pieces_s(model.decode_attention(n), n * context)
    assert seconds is not None
    return model.dense_s(0, 0, n) + seconds


def test_no_key_has_two_entries_and_none_is_of_the_stack_without_a_name() -> None:
    assert len(linear_keys()) == len(set(linear_keys()))
    for tp in (2, 4, 8):
        model = step_model("auto", load_gpu("h100"), load_llm("llama2_70b"), tp=tp)
        assert "vLLM 0.19.0" in model.source and "splitwise" not in model.source
    for tp in (2, 8):
        assert LinearKey("a100_80g", "llama2_70b", tp) not in linear_keys()


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_a_larger_group_is_faster_in_one_family(gpu: str) -> None:
    """The rows that went said 42, 16 and 47 ms at tp 2, 4 and 8."""
    models = [step_model("auto", load_gpu(gpu), load_llm("llama3_1_70b"), tp=tp) for tp in (2, 4, 8)]
    for n, context in ((1, 1024), (16, 1024), (64, 2048)):
        times = [decode_s(model, n, context) for model in models]
        assert times[0] > times[1] > times[2] > 0.2 * times[0]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "{gpu} {llm} {tp}".format(**entry))
def test_entries_answer_as_far_as_their_model_reads(entry: dict[str, int]) -> None:
    llm = load_llm(str(entry["llm"]))
    model = step_model("linear", load_gpu(str(entry["gpu"])), llm, tp=entry["tp"])
    assert model.limits.prompt_tokens >= llm.max_context_tokens
    measured = 32768 if llm.experts is None else 16384  # tables of products, tables of experts
    assert model.limits.max_decode_sequences == 1024 and model.limits.max_prefill_tokens == measured
    # As long as a prompt of 8,192 tokens behind 110,000: no time is lost or won by cutting it.
    whole = model.prefill_attention_s(16_384, 0)
    parts = model.prefill_attention_s(8192, 0) + model.prefill_attention_s(8192, 8192)
    assert parts == pytest.approx(whole, rel=1e-9)


def test_errors_are_declared_and_bounded() -> None:
    for entry in ENTRIES:
        for phase, errors in entry["errors_percent"].items():
            assert 0.0 < errors["held_out_mean"] < 10.0, (entry["gpu"], entry["llm"], entry["tp"], phase)
            assert errors["held_out_p95"] <= MOST_P95_PERCENT


def test_models_of_one_shape_share_them() -> None:
    assert linear_key(load_gpu("h100"), load_llm("llama3_70b"), 4) == LinearKey("h100", "llama3_1_70b", 4)


@pytest.mark.skipif(
    not (PROFILES / "aiconfigurator").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
@pytest.mark.parametrize(
    ("gpu", "llm", "tp"),
    [("h100", "llama3_1_70b", 4), ("rtx_pro_6000", "qwen3_32b", 4), ("h200", "mixtral_8x7b", 2),
     pytest.param("h100", "qwen3_30b_a3b", 1, marks=pytest.mark.laws)],
)  # fmt: skip
def test_entries_are_what_the_command_prints(gpu: str, llm: str, tp: int) -> None:
    source = next(source for source in SOURCES if source.gpu == gpu)
    text = entry_text(profile_of(PROFILES, source, llm, tp), source)
    assert text in CATALOGUE.read_text(encoding="utf-8")


@pytest.mark.skipif(
    not (PROFILES / "aiconfigurator").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
@pytest.mark.parametrize(
    ("llm", "tp", "prompts"), [("llama3_1_8b", 1, (0.13, 0.27)), ("qwen3_32b", 2, (0.03, 0.08))]
)
def test_composed_steps_against_a_models_own_layers(llm: str, tp: int, prompts: tuple[float, float]) -> None:
    own = linear_step_model(LinearKey("rtx_pro_6000", llm, tp))
    source = next(source for source in SOURCES if source.gpu == "rtx_pro_6000")
    composed = linear_model(profile_of(PROFILES, source, llm, tp))
    for n, context in ((1, 1024), (16, 1024), (64, 1024), (128, 2048)):
        assert 0.02 < decode_s(composed, n, context) / decode_s(own, n, context) - 1.0 < 0.07
    for tokens in (256, 1024, 2048):
        both = (one.dense_s(tokens, 1, 0) + one.prefill_attention_s(tokens, 0) for one in (composed, own))
        assert prompts[0] < next(both) / next(both) - 1.0 < prompts[1]
