"""Runs of the models that people serve: every family; systems that load, scale and migrate DeepSeek-V3."""

import json
from pathlib import Path

import pytest

from hwmodels.catalogue import load_llm
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import evaluated
from tests.worlds.faulted import play_both

# The datasheet's roofline: nothing has to be installed, and every shape has one.
ROOFLINE = ("engine.step_time=roofline", "uncertainty=off", "trace=azure_conv_like")
FAMILIES = {
    "deepseek_v2_lite": 1, "deepseek_v3": 8, "deepseek_v3_2": 8, "kimi_k2_5": 8, "glm_4_5_air": 4,
    "glm_5 model.precision=fp8_block": 8, "qwen3_235b_a22b": 8, "qwen3_next_80b_a3b": 2,
    "qwen3_5_397b_a17b": 8, "gpt_oss_120b": 1, "gpt_oss_20b": 1, "minimax_m2_5": 4, "llama4_scout": 4,
    "gemma3_27b": 1, "phi4": 1, "mistral_small_24b": 1, "mixtral_8x7b": 2,
}  # fmt: skip
DEEPSEEK = ("model=deepseek_v3", "model.tp=8", *ROOFLINE, "trace.requests=120")


@pytest.mark.parametrize("model", FAMILIES)
def test_every_family_runs_without_measured_step_times(model: str) -> None:
    tp, (name, *more) = FAMILIES[model], model.split()
    words = [f"model={name}", *more, f"model.tp={tp}", f"cluster=h200_x{tp}", *ROOFLINE, "trace.requests=12"]
    summary = evaluated(load_config([*words, "out=x"], "simulate"))
    assert summary["requests"]["finished"] == 12
    # A step reads at least the weights that one token uses, of 4 bits or more, at the memory's rate.
    read_s = load_llm(name).active_parameters / 2 / tp / 4.8e12
    assert read_s < summary["tpot_ms"]["mean"] / 1e3 < 0.2


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        (("system=blitzscale", "cluster=dgx_h200_4x8", "trace.rate_per_s=60"), '["load",'),
        (
            ("system=llumnix", "cluster=dgx_h200_2x8", "trace.rate_per_s=20", "engine.kv_tokens=9000"),
            '["migrate",',
        ),
    ],
    ids=["scaled", "migrated"],
)
def test_deepseek_holds_all_laws(load: tuple[str, ...], wanted: str) -> None:
    """Invariants after every event, coalesced as exact, and the journal replays without a difference."""
    played = play_both([*DEEPSEEK, *load])
    assert len(played.ends.finished_ids) == played.arrived == 120
    assert any(wanted in line for line in played.checked.lines)


def test_loads_of_deepseek_move_its_bytes(tmp_path: Path) -> None:
    words = ["simulate", "system=serverlessllm", *DEEPSEEK, "cluster=dgx_h200_4x8", "trace.rate_per_s=60"]
    assert cli.run([*words, f"out={tmp_path / 'run'}"]) == 0
    loads = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["loads"]
    weight_bytes = load_llm("deepseek_v3").weight_bytes
    assert 672e9 < weight_bytes < 675e9
    assert loads["count"] and sum(loads["bytes_by_tier"].values()) == loads["count"] * weight_bytes
