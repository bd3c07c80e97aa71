"""The committed results of ``python -m benchmarks.sharegpt_300`` are what the code gives today.

When a change of a model moves them on purpose, run that command and put its summaries and tables in place.
"""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.sharegpt_300 import CASES, ShareGptCase, run

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "sharegpt_300"
PROFILES = os.environ.get("SERVETWIN_PROFILES")
# What a run costs, which commit made it and where its profile lay.
ITS_OWN = ("sim", "code")


def summary_of(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    del summary["step_time"]["profile"]["path"]
    return {key: value for key, value in summary.items() if key not in ITS_OWN}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_committed_result_is_complete(case: ShareGptCase) -> None:
    summary = summary_of(RESULTS / case.name)
    assert summary["requests"] == {"arrived": 300, "finished": 300, "rejected": 0, "failed": 0, "dropped": 0}
    assert summary["imitates"] == "vllm 0.19.0" and summary["step_time"]["profile"]["forced"] == []
    assert len(pd.read_parquet(RESULTS / case.name / "requests.parquet")) == 300


@pytest.mark.skipif(PROFILES is None, reason="SERVETWIN_PROFILES does not name the measured tables")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_committed_result_comes_out_again(
    case: ShareGptCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Path(str(PROFILES)) / "llmservingsim"
    monkeypatch.setenv("SERVETWIN_TRACES", str(tables))
    assert run(case, tables.parent, tmp_path) == 0
    ours, committed = summary_of(tmp_path / case.name), summary_of(RESULTS / case.name)
    # Fits to measured tables differ in the last bits between processors, and with them the nanoseconds.
    for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "throughput"):
        assert ours[key] == pytest.approx(committed[key], rel=1e-3), key
    assert ours["step_time"]["source"] == committed["step_time"]["source"]
    assert ours["kv_capacity"] == committed["kv_capacity"]
    assert ours["trace"]["source"] == committed["trace"]["source"]
