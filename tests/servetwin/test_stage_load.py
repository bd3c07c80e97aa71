"""Stages over time: by hand, against the summary of a run, on the page and in the timeline."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from servetwin.cli import main as cli
from servetwin.report.stage_maps import stage_maps
from servetwin.report.stages import language_cells, stages_section
from servetwin.results.stage_load import COLUMNS, Change, default_period_s, stage_load
from traces.columns import Names

S = 1_000_000_000


def made() -> dict[str, object]:
    """Two stages of a model: requests 0 to 3 at stage 0, 0 and 1 at stage 1."""
    rows = [  # request, stage, replica, arrived, began, ended, in tenths of a second
        (0, 0, 0, 0, 0, 5), (1, 0, 0, 2, 5, 10), (2, 0, 2, 3, 12, 17), (3, 0, 0, 4, 10, 15),
        (0, 1, 1, 5, 5, 6), (1, 1, 1, 10, 10, 11),
    ]  # fmt: skip
    table = np.array(rows, dtype=np.int64)
    names = ("request", "stage", "replica", "arrived_ns", "began_ns", "ended_ns")
    columns = {name: table[:, at] * (S // 10 if name.endswith("ns") else 1) for at, name in enumerate(names)}
    return {"model": Names(np.zeros(len(rows), dtype=np.int32), ("m",)), **columns}


CHANGES = [
    Change(now_ns=0, model="m", stage=0, serving=1, loading=0),
    Change(now_ns=0, model="m", stage=1, serving=1, loading=0),
    Change(now_ns=5 * S // 10, model="m", stage=0, serving=0, loading=1),
    Change(now_ns=12 * S // 10, model="m", stage=0, serving=1, loading=-1),
]


def test_by_hand() -> None:
    found = stage_load(made(), CHANGES, 0.5, 1.7)
    first = {name: np.asarray(found[name])[found["stage"] == 0] for name in COLUMNS}
    assert list(np.unique(found["time_s"])) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert list(first["replicas"]) == [1, 1, 1, 2, 2]
    assert list(first["loading"]) == [0, 1, 1, 0, 0]
    assert list(first["queue"]) == [0, 2, 1, 0, 0]
    assert list(first["busy"]) == pytest.approx([0.0, 1.0, 1.0, 1.6, 0.4])
    assert list(first["arrivals_per_s"]) == [2.0, 6.0, 0.0, 0.0, 0.0]
    gaps = np.array([0.2, 0.1, 0.1])
    assert first["arrival_cv"][1] == pytest.approx(gaps.std() / gaps.mean())
    assert np.isnan(first["arrival_cv"][[0, 2, 3, 4]]).all()


@pytest.mark.parametrize(("span_s", "period_s"), [(0.5, 0.01), (24.6, 0.2), (61.0, 0.5), (900.0, 5.0)])
def test_some_two_hundred_rows_of_each_stage_at_round_seconds(span_s: float, period_s: float) -> None:
    assert default_period_s(span_s) == period_s


WORDS = (
    "system=quart", "model=whisper_9b", "cluster=quart", "trace=gamma", "trace.gap_cv=4",
    "trace.rate_per_s=60", "trace.requests=400", "uncertainty=off", "journal=true",
)  # fmt: skip


def test_a_run_has_its_stages_over_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert cli.run(["simulate", *WORDS, "series.period_s=0.25", f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    found = pd.read_parquet(out / "stage_series.parquet")
    span_s = summary["duration_s"]
    for row in summary["stages"]:
        own = found[found.stage == row["stage"]]
        assert own.busy.sum() * 0.25 == pytest.approx(row["busy_replicas"] * span_s)
        assert own.arrivals_per_s.sum() * 0.25 == pytest.approx(row["requests"])
        assert own.queue.max() <= row["queue_max"] and own.replicas.iloc[-1] == row["replicas"]
    assert found.loading.max() > 0 and found.loading.iloc[-1] == 0
    page = (out / "report.html").read_text()
    assert "Stages over time" in page and "CV of the arrivals" in page
    assert cli.run(["timeline", str(out), f"out={tmp_path / 't.json.gz'}"]) == 0
    slices = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    queue = [one for one in slices if one["ph"] == "C" and one["name"] == "whisper_9b stage 1 queue"]
    assert [one["args"]["queue"] for one in queue] == found[found.stage == 1].queue.to_list()


def test_runs_without_stages_have_no_such_file(tmp_path: Path) -> None:
    words = ["trace=azure_conv_like", "trace.requests=20", "trace.rate_per_s=4", "uncertainty=off"]
    assert cli.run(["simulate", *words, f"out={tmp_path / 'run'}"]) == 0
    assert not (tmp_path / "run" / "stage_series.parquet").exists()
    assert stage_maps(None) == ""


def test_stages_of_language_models_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["system=pipeline", "model=opt_13b", "cluster=quart", "trace=gamma", "trace.requests=20"]
    words += ["trace.rate_per_s=2", "trace.tokens_scale=0.1", f"out={tmp_path / 'run'}"]
    assert cli.run(["simulate", *words]) == 0
    told = capsys.readouterr().out
    assert "KV tokens" in told and "0 to 4" in told
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    cells = language_cells(summary)
    assert len(cells) == 8 and cells[0][:2] == ("0", "0 to 4")
    assert "<th>KV tokens</th>" in stages_section(summary)
    assert "<h2>Stages</h2>" in (tmp_path / "run" / "report.html").read_text()
