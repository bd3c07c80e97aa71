"""A clock that reads the same before and after a short run, as coarse ones do, ends no run."""

import json
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.report.number_text import NOTHING
from servetwin.run import simulate as simulation


def test_a_run_shorter_than_the_clock_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for clock in ("process_time", "perf_counter"):
        monkeypatch.setattr(simulation, clock, lambda: 0.25)
    words = ["trace=azure_conv_like", "trace.requests=1", f"out={tmp_path / 'run'}"]
    assert cli.run(["simulate", *words]) == 0, capsys.readouterr().err
    sim = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["sim"]
    assert sim["cpu_s"] == 0 and sim["requests_per_cpu_s"] is None
    assert f"{NOTHING} req/CPU-s" in capsys.readouterr().out
