"""The report shows every change of the number of instances, its reason, and what loading cost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.report.scaling import (
    _MOST_STEPS,
    MOST_ROWS,
    _least_and_most,
    _means,
    instance_steps,
    instances_plot,
    scaling,
)
from servetwin.report.table import live_facts, shortages
from servetwin.run.simulate import execute, prepare
from tests.worlds.made_up_results import SUMMARY, columns, page, simulated

ELASTIC = (
    "system=blitz_multicast",
    "cluster=blitz_b",
    "trace=azure_code_like",
    "trace.rate_scale=4",
    "trace.limit=600",
)


def event(t_s: float, act: str, role: str, replica: int | None, reason: str = "why") -> dict[str, Any]:
    return {"t_s": t_s, "act": act, "model": "m", "role": role, "replica": replica, "reason": reason}


def elastic(events: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return SUMMARY | {"duration_s": 10.0, "scale_events": events, "decisions": {"count": 9}} | more


def test_steps_begin_with_those_there_at_the_start_and_follow_every_change() -> None:
    """Two prefill and one decode at the start. Means: (2*2 + 3*3 + 2*5) / 10 and (1*5 + 2*5) / 10."""
    events = [
        event(2, "load", "prefill", 3),
        event(4, "ready", "prefill", 3),
        event(5, "mutate", "decode", 3),
        event(6, "shortage", "prefill", None),
        event(6, "drain", "decode", 1),
        event(7, "cancel_drain", "decode", 1),
    ]
    steps = instance_steps(events, {"prefill": 2.3, "decode": 1.5}, 10.0)
    assert {role: (x.tolist(), y.tolist()) for role, (x, y) in steps.items()} == {
        "prefill": ([0, 2, 5], [2, 3, 2]),
        "decode": ([0, 5], [1, 2]),
    }


def test_steps_from_nothing_and_back() -> None:
    events = [event(1, "load", "both", 0), event(3, "lost", "both", 0), event(4, "revive", "both", 0)]
    x, y = instance_steps([*events, event(9, "released", "both", 0)], {"both": 0.7}, 10.0)["both"]
    assert (x.tolist(), y.tolist()) == ([0, 1, 3, 4, 9], [0, 1, 0, 1, 0])


def test_steps_of_a_run_have_its_mean_and_never_go_below_nothing() -> None:
    summary = execute(prepare(simulated(*ELASTIC))).summary
    mean, span_s = summary["instances"]["mean_by_role"], summary["duration_s"]
    steps = instance_steps(summary["scale_events"], mean, span_s)
    assert set(steps) == {"prefill", "decode"}
    for role, (x, y) in steps.items():
        assert y[0] == 1 and y.min() >= 1 and y.max() > 1
        assert float((np.diff(np.append(x, span_s)) * y).sum()) / span_s == pytest.approx(mean[role])


def test_the_page_says_why_and_what_it_cost(tmp_path: Path) -> None:
    summary = elastic(
        [event(0.4, "load", "prefill", one, "13579 prompt tokens <want> 2") for one in (2, 3)],
        instances={"mean": 3.0, "max": 4, "mean_by_role": {"prefill": 2.92}},
        loads={
            "count": 2,
            "stopped": 1,
            "seconds": {"mean": 1.5, "max": 2.0},
            "bytes_by_tier": {"gpu": 32_000_000_000, "ssd": 0},
        },
        host_cache_bytes={"mean": 1.6e10, "max": 3.2e10},
        cache={"hits": 5, "misses": 6},
        decisions={"count": 9, "cpu_ms_p99": 0.25},
        live={"requests": 12, "passes": 3400, "plans_used": 5, "plans_refused": 0, "plans_late": 1},
    )
    shown = "".join(page(tmp_path, columns(50), summary).text.split())
    for words in (
        "400 ms load 2, 3 prefill m 13579 prompt tokens <want> 2",
        "load targets 2 complete, 1 stopped",
        "time of a load, mean 1.50 s, slowest 2.00 s",
        "loaded from other instances 32.0 GB",
        "mean 16.0 GB, most 32.0 GB",
        "served while loading 12 requests, 3,400 passes",
        "live scheduling plans 5 used, 0 refused, 1 late",
        "5 hits, 6 misses",
        "checks of the load monitor 9",
        "CPU time of a check, P99 0.250 ms",
        "load: parameters are sent to free GPUs 2",
    ):
        assert "".join(words.split()) in shown, words
    assert "loadedfromSSD" not in shown
    assert live_facts({}) == []
    assert (
        len(live_facts(dict.fromkeys(("requests", "passes", "plans_used", "plans_refused", "plans_late"), 0)))
        == 1
    )


def test_why_instances_did_not_come_is_said_by_obstacle(tmp_path: Path) -> None:
    short = event(1, "shortage", "prefill", None) | {"obstacle": "no_copy"}
    told = elastic([short, short | {"obstacle": "no_gpu"}, short], shortages={"no_copy": 2, "no_gpu": 1})
    shown = "".join(page(tmp_path, columns(50), told).text.split())
    for words in (
        "shortage, no_copy: GPUs were free, no copy of the parameters was found to load from 2",
        "shortage, no_gpu: no GPUs were free 1",
    ):
        assert "".join(words.split()) in shown
    assert [line.split(":")[0] for line in shortages(told)] == [
        "instances not started 2 times", "instances not started 1 times",
    ]  # fmt: skip
    assert shortages(SUMMARY) == []


def test_a_long_list_keeps_both_ends_and_says_how_much_is_missing() -> None:
    events = [event(0.1 * one, "load", "prefill", one, f"reason {one}") for one in range(MOST_ROWS + 5)]
    shown = scaling(elastic(events))
    assert f"5 rows are left out here: summary.json has all {MOST_ROWS + 5} events" in shown
    for there in (0, MOST_ROWS // 2 - 1, MOST_ROWS // 2 + 5, MOST_ROWS + 4):
        assert f">reason {there}<" in shown
    for cut in (MOST_ROWS // 2, MOST_ROWS // 2 + 4):
        assert f">reason {cut}<" not in shown
    assert "left out" not in scaling(elastic(events[:MOST_ROWS]))


def test_a_system_that_cannot_scale_has_no_such_section() -> None:
    assert scaling(SUMMARY) == ""
    assert scaling(SUMMARY | {"scale_events": [], "decisions": {"count": 0, "cpu_ms_p99": None}}) == ""
    assert "No instance was started or released" in scaling(elastic([]))


def test_means_of_stretches_keep_the_area_and_the_band_holds_every_change() -> None:
    """Of drawn numbers of instances: the area below the means is that below the changes."""
    random = np.random.default_rng(3)
    span_s = 77.0
    times = np.append(0.0, np.sort(random.uniform(0, span_s, 2000)))
    values = random.integers(0, 9, len(times)).astype(float)
    means = _means(times, values, span_s)
    area = (values * np.diff(np.append(times, span_s))).sum()
    assert len(means) == _MOST_STEPS and np.isclose(means.sum() * span_s / _MOST_STEPS, area)
    least, most = _least_and_most(times, values, span_s)
    assert (least <= means + 1e-9).all() and (means <= most + 1e-9).all()
    for at_s in random.uniform(0, span_s, 500):
        value = values[np.searchsorted(times, at_s, side="right") - 1]
        stretch = min(int(at_s / span_s * _MOST_STEPS), _MOST_STEPS - 1)
        assert least[stretch] <= value <= most[stretch]


def test_roles_stand_above_each_other_and_many_changes_become_stretches() -> None:
    few = [event(1, "load", "prefill", 2), event(2, "load", "decode", 3), event(4, "released", "prefill", 2)]
    summary = {"duration_s": 10.0, "instances": {"mean_by_role": {"prefill": 1.3, "decode": 1.8}}}
    drawn = instances_plot(few, summary)
    assert drawn.count('class="a1"') == drawn.count('class="a2"') == 2 and "stretches" not in drawn
    many = [
        event(at / 100, act, "prefill", 2)
        for at in range(0, 1000, 2)
        for act in (("load",) if at % 4 == 0 else ("released",))
    ]
    drawn = instances_plot(many, {**summary, "instances": {"mean_by_role": {"prefill": 1.5}}})
    assert "means of stretches of 41.7 ms" in drawn and "all: least and most" in drawn
    assert drawn.count("H") < 13 * _MOST_STEPS
