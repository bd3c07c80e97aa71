"""Drained instances with a grace period, and the starts of pods, through whole runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from serving.vocabulary.abort import GRACE_OVER

# The load monitor drains an instance after a third of a second below its bound, and starts another soon.
WORDS = (
    "system=serverlessllm", "cluster=blitz_b", "trace=poisson", "trace.rate_per_s=20",
    "trace.lengths=1024x256", "trace.requests=500", "uncertainty=off", "journal=true",
)  # fmt: skip
POD = (
    "system=serverlessllm", "system.instances.split=false", "system/scaler=hpa", "cluster=blitz_b",
    "engine.start_up=vllm", "trace=poisson", "trace.rate_per_s=20", "trace.lengths=1024x256",
    "trace.requests=1500", "uncertainty=off", "system.instances.start=cold",
)  # fmt: skip


def run_into(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *words, f"out={folder}"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


@pytest.mark.parametrize("split", ["true", "false"])
def test_what_is_not_served_in_the_grace_period_fails_step_by_step_and_in_replay(
    tmp_path: Path, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for grace_s in ("0", "2", "60"):
        words = (*WORDS, f"system.instances.split={split}", f"system.instances.drain_s={grace_s}")
        summary = run_into(tmp_path / grace_s, *words)
        counts = summary["requests"]
        assert counts["finished"] + counts["failed"] == counts["arrived"] == 500
        assert summary.get("failed_reasons", {}).get(GRACE_OVER, 0) == counts["failed"]
        run_into(tmp_path / f"{grace_s} exact", *words, "engine.exact=true")
        tables = [
            (tmp_path / name / "requests.parquet").read_bytes() for name in (grace_s, f"{grace_s} exact")
        ]
        assert tables[0] == tables[1]
        assert cli.run(["replay", str(tmp_path / grace_s)]) == 0
        assert "0 differ" in capsys.readouterr().out
        failed.append(counts["failed"])
    assert failed[0] > failed[1] > failed[2] == 0


def test_gpus_of_a_drained_instance_are_free_after_its_grace_period(tmp_path: Path) -> None:
    words = (*WORDS, "system.instances.split=false", "system.instances.drain_s=1")
    events = run_into(tmp_path / "run", *words)["scale_events"]
    drained = dict[int, float]()
    lasted = []
    for event in events:
        if event["act"] == "drain":
            drained[event["replica"]] = event["t_s"]
        elif event["act"] == "cancel_drain":
            del drained[event["replica"]]
        elif event["act"] == "released" and event["replica"] in drained:
            lasted.append(event["t_s"] - drained.pop(event["replica"]))
    assert lasted and max(lasted) > 1  # a period of the load monitor and a step may follow
    assert max(lasted) < 1 + 0.1 + 0.2


def test_a_pod_pulls_its_image_once_per_host_and_serves_from_a_probe_on(tmp_path: Path) -> None:
    plain = run_into(tmp_path / "plain", *POD)["starts"]["each"]
    words = (*POD, "system.instances.image_pull_s=60", "system.instances.probe_s=10", "cluster.start=warm")
    summary = run_into(tmp_path / "pod", *words)
    each = [start for start in summary["starts"]["each"] if start["complete"]]
    assert {"image_pull", "readiness_probe"}.isdisjoint(plain[0]["terms_s"])
    pulls = [start["terms_s"]["image_pull"] for start in each]
    assert max(pulls) == 60 and min(pulls) == 0  # the host of the first instance has it
    for start in each:
        in_container_s = start["seconds"] - start["terms_s"]["image_pull"]
        assert in_container_s % 10 == pytest.approx(0, abs=1e-6) or in_container_s % 10 == pytest.approx(
            10, abs=1e-6
        )
        assert 0 <= start["terms_s"]["readiness_probe"] < 10


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("system.instances.probe_s=10",), ["probe_s=10", "start=null", "cold or warm"]),
        (
            ("system.instances.image_pull_s=9", "system.instances.start=warm"),
            ["image_pull_s=9", "start=warm", "start=cold"],
        ),
        (
            ("system.instances.probe_s=10", "system.instances.start_total_s=100"),
            ["probe_s=10", "start_total_s"],
        ),
        (("system.instances.drain_s=-1",), ["drain_s", "-1"]),
        (
            ("system.instances.drain_s=3", "driver.carries_out=[assign,run,reject,load]"),
            ["driver.carries_out"],
        ),
    ],
)
def test_terms_that_do_not_fit_are_refused(
    words: tuple[str, ...], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["simulate", *WORDS, *words]) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in parts), said
