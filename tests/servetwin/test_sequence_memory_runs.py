"""Whole runs of models with sliding windows and with linear attention: memory, transfers, what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity, sequence_blocks_of
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.run.real_run import transformers_config
from servetwin.run.simulate import prepare
from serving.vocabulary.errors import UserError
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.faulted import play_both
from tests.worlds.hf_configs import LLAMA3_8B
from tests.worlds.refusals import refuses

BASE = ("engine.step_time=roofline", "uncertainty=off", "trace=azure_conv_like", "trace.requests=50")
GPT_OSS = ("model=gpt_oss_20b", *BASE)
STATES = ("model=qwen3_next_80b_a3b", "model.tp=4", *BASE)
SYSTEMS = {
    "vllm": ("cluster=dgx_h100_1x2", "engine.kv_tokens=6000", "trace.utilization=3", *GPT_OSS),
    "llumnix": ("cluster=dgx_h100_1x4", "engine.kv_tokens=6000", "trace.utilization=4", *GPT_OSS),
    "distserve_full": ("cluster=dgx_h100_1x4", "engine.kv_tokens=20000", *GPT_OSS),
    "blitzscale": ("cluster=blitz_a", "model=gemma3_27b", "model.tp=2", "trace.utilization=3", *BASE),
    "distserve_half": ("cluster=dgx_h100", *STATES),
}


def windowed(folder: Path, window_tokens: int) -> str:
    """A Qwen2 in the size of a Llama, every second layer of it with a window; the path of its file."""
    folder.mkdir()
    kinds = ["sliding_attention", "full_attention"] * 16
    keys = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}
    own = {"sliding_window": window_tokens, "layer_types": kinds}
    (folder / "config.json").write_text(json.dumps(LLAMA3_8B | keys | own))
    return f"model={folder}"


def simulated(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *words, f"out={folder}", "journal=true"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_holds_all_laws(system: str) -> None:
    """Invariants after every event, coalesced as exact, and the journal replays without a difference."""
    words = [f"system={system}", *SYSTEMS[system]]
    played = play_both(words)
    assert len(played.ends.finished_ids) == played.arrived == 50
    shown = {"vllm": '["preempt",', "llumnix": '["migrate",', "blitzscale": '["load",'}
    assert any(shown.get(system, '["send",') in line for line in played.checked.lines)


def entries(folder: Path) -> list[Any]:
    """The journal's (time, event, actions)."""
    lines = (folder / "journal").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines if line.startswith("[")]


def peak_resident(folder: Path) -> int:
    """The most requests that were admitted and had not ended; step by step, so that all is in the journal."""
    peak, running = 0, set[int]()
    for _, event, actions in entries(folder):
        if event[0] == "ran":
            running.difference_update(event[4])
        for action in actions:
            if action[0] == "run":
                running.update([request for request, _, _ in action[3]])
        peak = max(peak, len(running))
    return peak


def test_twice_the_window_leaves_room_for_fewer_sequences(tmp_path: Path) -> None:
    """Of 1,249 blocks, a request of 64 + 16 tokens takes 4, soon 5, and those of its window: 64 or 128."""
    words = (
        "system=vllm", "cluster=a100_x1", "engine.step_time=roofline", "uncertainty=off", "trace=poisson",
        "trace.lengths=64x16", "trace.requests=100", "trace.rate_per_s=10000", "engine.kv_tokens=20000",
        "engine.exact=true",
    )  # fmt: skip
    peaks, blocks = [], []
    for window in (1024, 2048):
        model = windowed(tmp_path / str(window), window)
        (replica,) = prepare(load_config([*words, model, "out=unused"], "simulate")).replicas
        blocks.append(replica.sequence_blocks)
        out = tmp_path / f"run {window}"
        assert simulated(out, *words, model)["preemptions"] == 0
        peaks.append(peak_resident(out))
        assert cli.run(["replay", str(out)]) == 0
    assert blocks == [64, 128]
    assert peaks == [1249 // (5 + 64), 1249 // (5 + 128)] == [18, 9]


def test_a_handover_sends_the_window_of_each_request_once(tmp_path: Path) -> None:
    words = ("system=distserve_full", "cluster=dgx_h100_1x4", *GPT_OSS)
    simulated(tmp_path / "run", *words)
    shape = load_llm("gpt_oss_20b")
    kv_bytes = KvBytes(shape.kv_bytes_per_token, shape.kv_bytes_per_sequence)
    prompts, sent = dict[int, int](), 0
    for _, event, actions in entries(tmp_path / "run"):
        if event[0] == "arrived":
            prompts[event[1]] = event[3]
        for _, _, _, requests, _, _, size_bytes, *_ in [one for one in actions if one[0] == "send"]:
            assert size_bytes == kv_bytes.of(sum(prompts[one] for one in requests), len(requests))
            sent += len(requests)
    assert sent == 50 and kv_bytes.per_sequence == 12 * 2 * 8 * 64 * 2 * 128


def test_capacity_tells_the_bytes_of_a_sequence_and_how_many_fit() -> None:
    gpu, shape = load_gpu("h100"), load_llm("gpt_oss_20b")
    words = {"tp": 1, "memory_utilization": 0.9, "block_tokens": 16}
    found = kv_capacity(gpu, shape, **words)  # type: ignore[arg-type]
    plain = kv_capacity(gpu, replace(shape, layer_types=()), **words)  # type: ignore[arg-type]
    own = shape.layers // 2 * 2 * shape.kv_heads * shape.head_dim * 2 * shape.window_tokens
    assert found.sequence_blocks == shape.window_tokens // 16
    fits = found.blocks // (1024 // 16 + found.sequence_blocks)
    assert f"{own} B per sequence = 8 blocks, so {fits} sequences of 1,024 tokens fit" in found.arithmetic
    assert (plain.sequence_blocks, "sequence" in plain.arithmetic) == (0, False)
    assert found.tokens == pytest.approx(2 * plain.tokens, rel=1e-3)


def test_states_are_split_over_ranks_where_keys_and_values_are_copied() -> None:
    """Qwen3-Next has 2 KV heads: on 4 ranks a block is twice as large, its states are not."""
    shape = load_llm("qwen3_next_80b_a3b")
    one, two, four = (sequence_blocks_of(shape, tp=tp, block_tokens=16) for tp in (1, 2, 4))
    assert one == two == -(-shape.kv_bytes_per_sequence // (16 * shape.kv_bytes_per_token))
    assert four == -(-shape.kv_bytes_per_sequence // (2 * 16 * shape.kv_bytes_per_token))


def test_each_stage_has_the_windows_of_its_layers() -> None:
    shape = load_llm("gemma3_27b")
    whole = sequence_blocks_of(shape, tp=1, block_tokens=16)
    parts = [sequence_blocks_of(shape, tp=1, block_tokens=16, layers=range(at, at + 6)) for at in (0, 6)]
    assert parts == [5 * 1024 // 16] * 2 and whole == -(-52 * 1024 // 16 // 10)
    with pytest.raises(HardwareError, match="no layer of gemma3_27b from 0 to 5 keeps more KV"):
        sequence_blocks_of(shape, tp=1, block_tokens=16, layers=range(5))


def test_prefix_caching_is_off_for_states_and_refused_where_it_was_written() -> None:
    words = ["system=vllm", "cluster=dgx_h100_1x4", *STATES, "out=unused"]
    assert not load_config(words, "simulate").engine.prefix_caching
    assert load_config([*words[:2], *GPT_OSS, "out=unused"], "simulate").engine.prefix_caching
    written = [*words, "engine.prefix_caching=true"]
    named = "engine.prefix_caching=true does not fit model=qwen3_next_80b_a3b.*prefix_caching=false"
    refuses(UserError, named, load_config, written, "simulate")


@pytest.mark.parametrize("kv_tokens", [320, 480])
def test_a_memory_that_holds_no_window_is_refused(kv_tokens: int) -> None:
    words = ["system=vllm", "cluster=dgx_h100_1x1", "model=gemma3_27b", "model.tp=1", *BASE, "out=unused"]
    config = load_config([*words, f"engine.kv_tokens={kv_tokens}"], "simulate")
    refuses(UserError, "KV blocks hold no sequence of gemma3_27b", prepare, config)


def test_real_workers_refuse_windows() -> None:
    refuses(UserError, "real workers compute full attention", transformers_config, "gemma3_27b")
