"""The summary of a run, from made-up facts."""

import numpy as np
import pytest

from servetwin.results.metrics import RunMetrics, summarize
from serving.vocabulary.units import FRACTION_BITS
from tests.worlds.made_up_results import MS, SLO, request


def test_two_answers_by_hand() -> None:
    metrics = RunMetrics()
    # 3 tokens at 50, 60, 80 ms; one token at 300 ms, 200 ms after its arrival.
    metrics.finished(request(1, 100), 1, 300 * MS, 300 * MS, 1, 0)
    metrics.finished(request(0, 0), 3, 50 * MS, 80 * MS, 0, 2)
    metrics.gaps(10 * MS << FRACTION_BITS, 10 * MS << FRACTION_BITS, 2, 1)
    metrics.busy(0, 80 * MS)
    metrics.busy(1, 150 * MS)
    columns = metrics.columns()
    summary = summarize(metrics, columns, dropped={"zero": 1}, slo=SLO, gpus=4, instances=2)

    assert columns["request"].tolist() == [0, 1]
    assert columns["ttft_ms"].tolist() == [50, 200]
    np.testing.assert_array_equal(columns["tpot_ms"], [15, np.nan])
    assert summary["requests"] == {"arrived": 3, "finished": 2, "rejected": 0, "failed": 0, "dropped": 1}
    assert summary["ttft_ms"]["mean"] == 125 and summary["ttft_ms"]["p50"] == 125
    assert summary["itl_ms"]["mean"] == 15 and summary["itl_ms"]["max"] == 20
    assert summary["e2e_ms"]["max"] == 200
    assert summary["slo"]["ttft_attainment"] == 0.5 and summary["slo"]["tpot_attainment"] == 1
    assert summary["duration_s"] == 0.3 and summary["gpu_seconds"] == pytest.approx(1.2)
    assert summary["replica_busy_share"] == pytest.approx([80 / 300, 0.5])
    assert summary["preemptions"] == 2


def test_a_run_lasts_until_its_last_failure() -> None:
    metrics = RunMetrics()
    metrics.finished(request(0, 0), 2, 1000 * MS, 2000 * MS, 0, 0)
    metrics.gaps(1000 * MS << FRACTION_BITS, 0, 1, 1)
    # Three gaps of 4 s, then the worker is gone: they count, though the request never finished.
    metrics.gaps(4000 * MS << FRACTION_BITS, 0, 3, 1)
    metrics.failed(request(1, 0), 8000 * MS, "worker gone")
    metrics.busy(0, 2000 * MS)
    metrics.busy(1, 8000 * MS)
    summary = summarize(metrics, metrics.columns(), dropped={}, slo=SLO, gpus=2, instances=2)
    assert summary["duration_s"] == 8 and summary["gpu_seconds"] == 16
    assert summary["replica_busy_share"] == [0.25, 1.0]
    assert summary["gpu_busy_share"] == 0.625
    assert summary["itl_ms"]["mean"] == pytest.approx(3250, rel=0.003)
    assert summary["slo"]["attainment"] == 0.0 and summary["failed_reasons"] == {"worker gone": 1}


def test_nobody_finished() -> None:
    metrics = RunMetrics()
    metrics.failed(request(0, 0), 5000 * MS, "worker gone")
    metrics.busy(0, 5000 * MS)
    summary = summarize(metrics, metrics.columns(), dropped={}, slo=SLO, gpus=1, instances=1)
    assert summary["gpu_seconds"] == 5 and summary["gpu_busy_share"] == 1.0
    assert summary["ttft_ms"]["mean"] is None and summary["itl_ms"]["mean"] is None


def test_rows_are_the_same_however_often_they_were_moved_into_blocks() -> None:
    """Rows of a buffer, of blocks as narrow as their numbers, and of a call before are sorted together."""
    late = 2**40
    rows = [
        (request(5, late), 2**17, late + 5 * MS, late + 9 * MS, 40_000, 0),
        (request(3, 7 * MS), 1, 8 * MS, 8 * MS, 2, 70_000),
        (request(70_000, 0), 2, 3 * MS, 4 * MS, 0, 1),
        (request(4, 1), 10, 2 * MS, 6 * MS, 1, 0),
    ]
    at_once, in_blocks = RunMetrics(), RunMetrics()
    for row in rows:
        at_once.finished(*row)
        in_blocks.finished(*row)
        in_blocks._settle()
    asked_between = RunMetrics()
    for row in rows:
        asked_between.finished(*row)
        asked_between.columns()
    wanted = at_once.columns()
    assert wanted["request"].tolist() == [3, 4, 5, 70_000]
    assert wanted["output_tokens"].tolist() == [1, 10, 2**17, 2]
    assert wanted["replica"].tolist() == [2, 1, 40_000, 0]
    for name, column in wanted.items():
        for other in (in_blocks, asked_between):
            found = other.columns()[name]
            assert found.dtype == column.dtype
            np.testing.assert_array_equal(found, column)
