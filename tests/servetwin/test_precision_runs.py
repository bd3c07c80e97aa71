"""Whole runs of a model in FP8: loads, KV and migrations carry its bytes, in both modes."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_llm
from servetwin.assemble.hosted import run_shape
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved
from serving.vocabulary.errors import UserError
from tests.worlds.faulted import play_both
from tests.worlds.hf_configs import LLAMA3_8B
from tests.worlds.refusals import refuses

WEIGHT_BYTES = {None: 141_107_412_992, "fp8": 72_656_371_712}
MODEL = ("model=llama3_1_70b", "model.tp=4", "engine.step_time=roofline", "uncertainty=off")
TRACE = ("trace=azure_conv_like", "trace.requests=60")
# Hosts of eight GPUs with two instances each; H100s for systems of BlitzScale's artefact.
SYSTEMS = {
    "blitzscale": ("cluster=blitz_a",),
    "serverlessllm": ("cluster=blitz_a",),
    "llumnix": ("cluster=dgx_h100", "trace.utilization=6", "engine.kv_tokens=8000"),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_in_fp8_holds_all_laws(system: str) -> None:
    """Invariants after every event, coalesced as exact, and the journal replays without a difference."""
    words = [f"system={system}", *MODEL, "model.precision=fp8", *TRACE, *SYSTEMS[system]]
    played = play_both(words)
    assert len(played.ends.finished_ids) == played.arrived == 60
    moves = {"llumnix": '["migrate",'}.get(system, '["load",')
    assert any(moves in line for line in played.checked.lines)


def simulated(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *words, f"out={folder}", "journal=true"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


@pytest.mark.parametrize("system", ["blitzscale", "serverlessllm"])
def test_loads_move_half_the_bytes_in_half_the_time(system: str, tmp_path: Path) -> None:
    """Alone on its links, a load of serverlessllm takes the time of its bytes at their rate."""
    found = {}
    for precision in (None, "fp8"):
        chosen = [] if precision is None else [f"model.precision={precision}"]
        folder = tmp_path / str(precision)
        found[precision] = simulated(folder, f"system={system}", *MODEL, *chosen, *TRACE, *SYSTEMS[system])
        loads = found[precision]["loads"]
        moved = sum(loads["bytes_by_tier"].values())
        assert loads["stopped"] or moved == loads["count"] * WEIGHT_BYTES[precision]
    seconds = {precision: summary["loads"]["seconds"]["max"] for precision, summary in found.items()}
    share = WEIGHT_BYTES["fp8"] / WEIGHT_BYTES[None]
    if system == "serverlessllm":
        assert seconds["fp8"] == pytest.approx(seconds[None] * share, rel=0.02)
    assert seconds["fp8"] < seconds[None]
    assert found["fp8"]["precision"] == "fp8, KV bf16" and "precision" not in found[None]
    assert "fp8, KV bf16" in (tmp_path / "fp8" / "report.html").read_text(encoding="utf-8")


def test_replay_and_a_run_from_its_configuration_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "system=blitzscale",
        *MODEL,
        "model.precision=fp8",
        "engine.kv_cache_dtype=fp8",
        *TRACE,
        *SYSTEMS["blitzscale"],
    )
    first = simulated(tmp_path / "first", *words)
    capsys.readouterr()
    assert cli.run(["replay", str(tmp_path / "first")]) == 0
    assert "0 differ" in capsys.readouterr().out
    config = load_resolved(tmp_path / "first" / "config.yaml")
    assert (config.model.precision, config.engine.kv_cache_dtype) == ("fp8", "fp8")
    again = simulated(tmp_path / "again", f"config={tmp_path / 'first'}")
    assert again["ttft_ms"] == first["ttft_ms"]


def test_kv_in_fp8_halves_what_a_handover_sends(tmp_path: Path) -> None:
    words = ("system=distserve_full", *MODEL, *TRACE, "cluster=blitz_a")
    sent = [
        simulated(tmp_path / dtype, *words, f"engine.kv_cache_dtype={dtype}")["network"]["pcie"]["bytes"][
            "kv"
        ]
        for dtype in ("fp8", "bf16")
    ]
    assert 2 * sent[0] == sent[1] > 0


def test_a_publication_is_its_model_and_precision(tmp_path: Path) -> None:
    config = load_config(["model=nvidia/Llama-3.1-70B-Instruct-FP8", *MODEL[1:], "out=none"], "simulate")
    assert (config.model.name, config.model.precision) == ("llama3_1_70b", "fp8")
    assert run_shape(config).weight_bytes == WEIGHT_BYTES["fp8"]
    other = load_config(
        ["model=Qwen/Qwen3-32B-FP8", "model.precision=nvfp4", "engine.step_time=roofline", "out=none"],
        "simulate",
    )
    assert other.model.precision == "nvfp4"


def test_a_checkpoint_of_its_own_is_stored_as_it_says(tmp_path: Path) -> None:
    said = {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3_8B | said))
    words = [f"model={tmp_path}", "engine.step_time=roofline", "out=none"]
    read, wide = load_config(words, "simulate"), load_config([*words, "model.precision=bf16"], "simulate")
    assert run_shape(read).formats.text == "fp8, KV bf16"
    assert run_shape(wide).weight_bytes == load_llm("llama3_8b").weight_bytes


@pytest.mark.parametrize("word", ["model.precision=fp8", "engine.kv_cache_dtype=fp8"])
def test_real_workers_refuse_a_precision(word: str) -> None:
    key = word.partition("=")[0]
    refuses(UserError, f"{key}.*simulat", load_config, [word, "out=none"], "realexec", alone=True)


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("model.precision=fp6", "model.precision=fp6.*write one of bf16, fp8"),
        ("engine.kv_cache_dtype=int8", "engine.kv_cache_dtype=int8.*auto"),
    ],
)
def test_an_unknown_word_is_refused_with_its_key(word: str, named: str) -> None:
    refuses(UserError, named, load_config, [*MODEL, word, "out=none"], "simulate")
