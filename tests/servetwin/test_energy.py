"""The energy of a run: the same work on twice the GPUs draws more, by what waits."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli

TRACE = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=10", "uncertainty=off")


def energy(out: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    assert cli.run(["simulate", *TRACE, *words, f"out={out}"]) == 0
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary, summary.get("energy", {})


def test_gpus_that_wait_draw_power_too(tmp_path: Path) -> None:
    found = {gpus: energy(tmp_path / str(gpus), f"cluster=a100_x{gpus}") for gpus in (2, 8)}
    for summary, one in found.values():
        assert 88 < one["gpu_mean_w"] < 400, "an A100 between idle and its limit"
        assert one["gpu_kwh"] * 3.6e6 == pytest.approx(one["gpu_mean_w"] * summary["gpu_seconds"])
    assert found[8][1]["gpu_kwh"] > found[2][1]["gpu_kwh"]
    assert found[8][1]["gpu_mean_w"] < found[2][1]["gpu_mean_w"]


def test_workers_on_cpu_cores_have_no_figure(tmp_path: Path) -> None:
    summary, one = energy(tmp_path / "local", "cluster=local", "model=tiny_llama", "trace.tokens_scale=0.05")
    assert one == {} and summary["gpu_seconds"] > 0
