"""What ZigZag can gain in one pair: the closed form, layer by layer, and in whole runs."""

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.blitzscale.zigzag import (
    BEST_WORK,
    BOUND,
    POINTS,
    SET_UP,
    Setting,
    cases,
    closed,
    kept_s,
    scheduled,
    shared_s,
    simulated,
    zigzag_s,
)
from policies.live.zigzag_replay import ilp_free, replay
from serving.protocols.live import LiveView

MANY = 256  # layers


def test_the_bound_is_where_the_new_one_can_no_longer_keep_up() -> None:
    assert (round(BEST_WORK, 4), round(BOUND, 4)) == (1.5936, 0.6144)
    assert 1 - exp(-BEST_WORK) == pytest.approx(BEST_WORK / 2)
    ratio, work = closed(shared_s, points=1000).best()
    assert BOUND <= ratio < BOUND + 1e-3 and work == pytest.approx(BEST_WORK, abs=0.01)
    assert closed(kept_s).best()[0] == pytest.approx(0.5)


def test_schedules_of_many_layers_end_as_the_closed_form_has_it() -> None:
    """Loads of 24 layer times; half a layer's load is as much as a curve may be off."""
    found = scheduled(MANY, 24)
    for work, zigzag, effort in zip(found.work, found.zigzag, found.effort, strict=True):
        assert zigzag == pytest.approx(zigzag_s(work), rel=0.025)
        assert effort == pytest.approx(kept_s(work), rel=0.015)


@given(st.data(), st.integers(8, 40))
@settings(max_examples=30)
def test_no_division_ends_sooner_than_the_closed_form(data: st.DataObject, batches: int) -> None:
    """The first layer is there at 0, so a load counts from one layer before."""
    layers, load = 16, 12
    view, least = LiveView(layers, load, (1,) * batches), zigzag_s(batches / load)
    drawn = data.draw(st.lists(st.integers(0, layers), min_size=batches, max_size=batches))
    for split in (drawn, ilp_free(view).target_layers):
        assert (max(replay(view, split).finish_ns) + load) / (layers * load) >= least
    assert max(ilp_free(view).finish_ns) / (layers * load) < least * 1.1, "it comes near"


def test_whole_runs_end_as_their_schedules_and_share_what_is_left() -> None:
    ran, planned = simulated(), scheduled()
    assert ran.zigzag == pytest.approx(planned.zigzag, rel=0.01)
    for work, effort, kept in zip(ran.work, ran.effort, planned.effort, strict=True):
        # What is not through when everything is loaded is run by both, to one batch.
        expected = kept if kept <= 1 else (1 + kept) / 2
        assert effort == pytest.approx(expected, abs=1.5 / 12), work
    ratio, work = ran.best()
    assert BOUND < ratio < 0.66 and work == pytest.approx(BEST_WORK, abs=0.1)
    assert 0.5 < planned.best()[0] < 0.55


def test_every_setting_is_run_with_both_schedulers_on_hosts_of_one_gpu() -> None:
    assert "cluster=blitz_b_16x1" in SET_UP.words
    names = [one.name for one in POINTS]
    assert len(set(names)) == len(names) and Setting().name == "tails, 1 per partner"
    assert Setting(False, 4, 0).name == "all, 4 per partner, slo 0"
    assert len(cases()) == 2 * len(POINTS) + 3  # stopped once for every way of pre-scaling
    for point in POINTS:
        ours, effort, stop = point.cases()
        assert set(effort.words) - set(ours.words) == {"system/live=best_effort"}
        assert not any(word.startswith("system.live.") for word in stop.words)
