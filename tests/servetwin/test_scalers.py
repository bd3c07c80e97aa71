"""Scalers that read metrics as monitoring has them, through whole runs."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.scalers_picture import PAGE, TRACES, points_of
from servetwin.cli import main as cli

SCALERS = (
    "hpa", "keda", "kpa", "apa", "token_velocity", "tokenscale", "heteroscale", "wva_v1", "wva_v2",
    "dynamo_throughput", "dynamo_load",
)  # fmt: skip
WORDS = (
    "cluster=blitz_b", "trace=burstgpt_like", "trace.requests=700", "uncertainty=off", "journal=true",
)  # fmt: skip
SYSTEM = "system=serverlessllm"
LATE = "system.signals.delay_s=1"
BOTH = "system.instances.split=false"
RATE = "trace.base_rate_per_s=12"


def run_into(folder: Path, *words: str) -> dict[str, Any]:
    """The summary without what the run cost."""
    assert cli.run(["simulate", *WORDS, *words, f"out={folder}"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    del summary["sim"]
    summary.get("decisions", {}).pop("cpu_ms_p99", None)
    return summary


@pytest.mark.parametrize(
    ("scaler", "split"),
    [*itertools.product(SCALERS, ["system.instances.split=true", BOTH]), ("chiron", BOTH)],
)
def test_late_metrics_are_the_same_step_by_step_and_in_replay(
    tmp_path: Path, scaler: str, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    same_both_ways_and_in_replay(tmp_path, capsys, SYSTEM, RATE, LATE, f"system/scaler={scaler}", split)


def same_both_ways_and_in_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, Any]:
    """Coalesced, step by step and replayed; returns the summary."""
    coalesced = run_into(tmp_path / "coalesced", *words)
    exact = run_into(tmp_path / "exact", *words, "engine.exact=true")
    assert coalesced == exact
    files = [(tmp_path / name / "requests.parquet").read_bytes() for name in ("coalesced", "exact")]
    assert files[0] == files[1]
    assert cli.run(["replay", str(tmp_path / "coalesced")]) == 0
    assert "0 differ" in capsys.readouterr().out
    return coalesced


def test_decode_instances_take_a_burst_of_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("system=tokenscale", "trace.base_rate_per_s=6", LATE)
    with_them = same_both_ways_and_in_replay(tmp_path, capsys, *words)
    without = run_into(tmp_path / "without", *words, "system/dispatch=least_outstanding")
    taken = (tmp_path / "coalesced" / "journal").read_text(encoding="utf-8").count(" ms in chunks of ")
    assert taken > 50
    assert with_them["ttft_ms"]["p90"] < 0.7 * without["ttft_ms"]["p90"]


@pytest.mark.parametrize("words, what", [
    ((SYSTEM, BOTH), "write system=tokenscale or system/dispatch=least_outstanding"),
    (("system=blitzscale",), "write system/live=none or system/dispatch=least_outstanding"),
])  # fmt: skip
def test_convertible_decoders_where_there_are_none_are_refused(
    words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["simulate", *WORDS, RATE, *words, "system/dispatch=convertible", "out=OUT"]) == 2
    assert what in capsys.readouterr().err


def test_instances_take_either_role_as_the_time_per_token_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("system=llumnix_v2", "system.dispatch.tpot_ms=22", "system.migration.tpot_ms=22")
    words = (*words, "trace.base_rate_per_s=4", "migration.period_ms=100")
    adapts = same_both_ways_and_in_replay(tmp_path, capsys, *words)
    journal = (tmp_path / "coalesced" / "journal").read_text(encoding="utf-8")
    assert journal.count('"decode","no decode instance keeps ') >= 3
    assert journal.count('"prefill","it decodes nothing"') >= 8  # five of the six that start so, and again
    assert adapts["migrations"]["committed"] > 50
    assert adapts["tpot_ms"]["p90"] < 22


@pytest.mark.parametrize("words, what", [
    (("system=llumnix_v2", "system.instances.split=false"), "write system=llumnix_v2 or system/dispatch="),
    (("system=serverlessllm", "system/dispatch=adaptive_pd"), "write system/scaler=none"),
    (("system=llumnix_v2", "model.prefill.tp=1", "model.decode.tp=2"), "write one model.tp"),
])  # fmt: skip
def test_adaptive_roles_where_they_do_not_fit_are_refused(
    words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["simulate", *WORDS, "trace.base_rate_per_s=4", *words, "out=OUT"]) == 2
    assert what in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["blitz_native", "vllm_v1"])
def test_chiron_limits_batches_by_what_a_token_took(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (SYSTEM, BOTH, "system.instances.queue=per_instance", f"engine={engine}", RATE)
    words = (*words, "system/scaler=chiron", "system.scaler.batch=32", "system.scaler.itl_ms=20")
    summary = same_both_ways_and_in_replay(tmp_path, capsys, *words)
    limits = [event["reason"] for event in summary["scale_events"] if event["act"] == "limit_batch"]
    assert len(set(limits)) > 3
    assert all(reason.endswith(("the objective 20", "no request has finished yet")) for reason in limits)


def test_chiron_is_of_instances_that_do_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", *WORDS, RATE, SYSTEM, "system/scaler=chiron", "out=OUT"]) == 2
    assert "write system.instances.split=false" in capsys.readouterr().err


def test_the_picture_of_the_page_has_every_scaler_on_every_trace() -> None:
    points = points_of(PAGE.read_text(encoding="utf-8"))
    drawn = {(point.scaler, point.trace) for point in points}
    assert drawn >= {(scaler, trace) for scaler in SCALERS for trace in TRACES}
    assert len(drawn) == len(points) and all(0 < point.over_bound[0] < 20 for point in points)
