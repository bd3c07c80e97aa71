"""Figures beyond Llumnix's paper: what they run, and that a drained instance frees its GPUs sooner."""

import json
from pathlib import Path

import pytest

from experiments.common.scale_times import freeing_s
from experiments.llumnix import beyond
from experiments.llumnix.judge import cases_of
from experiments.llumnix.registry import FIGURES
from servetwin.cli import main as cli

WORDS = (
    "simulate", "system=blitz_multicast", "system.instances.split=false", "cluster=blitz_b", "models=zipf",
    "models.count=4", "models.rate_per_s=10", "trace=azure_code_like", "trace.limit=400", "uncertainty=off",
)  # fmt: skip


def test_what_runs_on_a_drained_instance_migrates_and_its_gpus_are_free_sooner(tmp_path: Path) -> None:
    longest = {}
    for option in ("none", "least_loaded"):
        folder = tmp_path / option
        assert cli.run([*WORDS, f"system/migration={option}", f"out={folder}"]) == 0
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        assert summary["requests"]["finished"] == 400
        longest[option] = max(freeing_s(summary))
    assert longest["least_loaded"] < longest["none"] / 2


def test_who_waits_for_room_decodes_sooner_where_requests_make_some(tmp_path: Path) -> None:
    """The same figure as ``defragment`` at its highest rate, of fewer requests."""
    found = {}
    for label in ("none", "defragment"):
        (case,) = [
            one
            for one in cases_of(beyond.defragment_curves)(900)
            if one.label == label and "at 6/s" in one.set_up.name
        ]
        words = [*case.all_words(), f"out={tmp_path / label}"]
        assert cli.run(["simulate", *words]) == 0
        found[label] = json.loads((tmp_path / label / "summary.json").read_text(encoding="utf-8"))
    assert found["defragment"]["migrations"]["committed"] > 5
    assert found["defragment"]["tpot_ms"]["p99"] < found["none"]["tpot_ms"]["p99"] / 2
    assert found["defragment"]["requests"]["finished"] == found["none"]["requests"]["finished"] == 900


def test_the_time_to_free_gpus_begins_with_the_decision() -> None:
    acts = [
        ("drain", 1, 2.0), ("drain", 2, 3.0), ("cancel_drain", 2, 4.0), ("released", 1, 5.5),
        ("drain", 3, 6.0), ("lost", 3, 7.0), ("drain", 1, 8.0), ("released", 1, 8.25), ("released", 9, 9.0),
        ("drain", 2, 9.0),
    ]  # fmt: skip
    events = [{"act": act, "replica": replica, "t_s": at_s} for act, replica, at_s in acts]
    assert freeing_s({"scale_events": events}) == [3.5, 0.25] and freeing_s({}) == []


@pytest.mark.parametrize("figure", ["defragment", "into_loading", "notice", "vacate", "victims"])
def test_cases_differ_in_what_is_compared_alone(figure: str) -> None:
    found = FIGURES[figure][1](100)
    assert len({(case.label, case.set_up.name) for case in found}) == len(found)
    assert len({case.all_words() for case in found}) == len(found)
