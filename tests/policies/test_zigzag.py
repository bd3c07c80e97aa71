"""ZigZag without a solver: the paper's example, a tick simulation and all splits as oracles, laws."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.live.zigzag import BestEffort, IlpFree, StopTheWorld
from policies.live.zigzag_replay import Schedule, best_effort, ilp_free, replay, stop_the_world
from serving.protocols.live import LiveScheduler, LiveView

FOREVER_NS = 10**9
WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=7).map(tuple)


def paper(batches: int) -> LiveView:
    """The example of the paper: 7 layers, a load takes as long as 6 of them, all requests are there."""
    return LiveView(7, 6, (1,) * batches)


@st.composite
def views(draw: st.DrawFn, weights: st.SearchStrategy[tuple[int, ...]] = WEIGHTS) -> LiveView:
    layers, layer_ns = draw(st.integers(2, 8)), draw(weights)
    arrival_ns = draw(st.lists(st.integers(-5, 60), min_size=len(layer_ns), max_size=len(layer_ns)))
    return LiveView(
        layers,
        draw(st.integers(1, 12)),
        layer_ns,
        draw(st.sampled_from(((), tuple(sorted(arrival_ns))))),
        draw(st.integers(1, layers)),
    )


@st.composite
def views_and_splits(draw: st.DrawFn) -> tuple[LiveView, tuple[int, ...]]:
    view = draw(views())
    return view, tuple(draw(st.integers(0, view.layers)) for _ in range(view.batches))


def ones(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.integers(1, count).map(lambda batches: (1,) * batches)


# ---- oracles, for layers of one tick


def by_ticks(view: LiveView) -> tuple[list[int], list[int]]:
    """Fig. 16 tick by tick: (finish times, layers on the target); every layer takes one tick."""
    done, target_layers = [0] * view.batches, [0] * view.batches
    finish, pulled, tick = [0] * view.batches, None, 0
    open_batches = set(range(view.batches))
    while open_batches or pulled is not None:
        loaded = sum(
            max(0, layer - view.loaded) * view.layer_load_ns <= tick for layer in range(1, view.layers + 1)
        )
        there = [one for one in sorted(open_batches) if view.arrived_ns(one) <= tick]
        if pulled is None and any(done[one] for one in there):
            pulled = next(one for one in there if done[one])
            open_batches.remove(pulled)
            there.remove(pulled)
        ready = [one for one in there if done[one] < loaded]
        tick += 1
        if pulled is not None:
            done[pulled] += 1
            if done[pulled] == view.layers:
                finish[pulled], pulled = tick, None
        if ready:
            done[ready[0]] += 1
            target_layers[ready[0]] += 1
            if done[ready[0]] == view.layers:
                finish[ready[0]] = tick
                open_batches.remove(ready[0])
    return finish, target_layers


def by_slots(layers: int, load: int, split: Sequence[int]) -> list[int]:
    """Finish times of a split: batch after batch takes the first free ticks of the target after its loads."""
    taken, source, finish = 0, 0, []
    for on_target in split:
        tick = 0
        for layer in range(on_target):
            tick = max(tick, layer * load)
            while taken >> tick & 1:
                tick += 1
            taken |= 1 << tick
            tick += 1
        if on_target < layers:
            source = tick = max(tick, source) + layers - on_target
        finish.append(tick)
    return finish


def least_mean(layers: int, load: int, batches: int) -> Fraction:
    """The least mean finish time over all splits, T_1 free too: depth first, leaving what cannot be better.

    Of those still to come the m-th to finish needs all its layers, and both instances for those of m batches.
    """
    coming = [max(layers, -(-(more + 1) * layers // 2)) for more in range(batches)]
    best = batches * batches * layers

    def look(split: tuple[int, ...]) -> None:
        nonlocal best
        total = sum(by_slots(layers, load, split))
        if total + sum(coming[: batches - len(split)]) >= best:
            return
        if len(split) == batches:
            best = total
            return
        for on_target in range(layers, -1, -1):
            look((*split, on_target))

    look(())
    return Fraction(best, batches)


# ---- the example of the paper


def test_best_effort_is_the_papers() -> None:
    found = best_effort(paper(7))
    assert found.finish_ns == (7, 13, 19, 25, 31, 37, 42)
    assert found.target_layers == (1, 1, 1, 1, 1, 1, 2)


def test_best_effort_runs_half_of_the_layers_at_most() -> None:
    assert best_effort(LiveView(7, 6, (1,) * 3, loaded=7)).target_layers == (3, 3, 3)


def test_ilp_free_is_the_papers() -> None:
    found = ilp_free(paper(7))
    assert found.finish_ns == (7, 12, 17, 21, 24, 27, 29)
    assert found.target_layers == (1, 2, 2, 3, 4, 4, 5)
    assert replay(paper(7), found.target_layers) == found


def test_latencies_the_paper_quotes() -> None:
    """Request 3: 17. From 32 to 22: batch 6 from its first layer on the target, at 5 (the text says 7)."""
    assert ilp_free(paper(7)).finish_ns[2] == 17
    assert best_effort(paper(7)).finish_ns[5] - 5 == 32
    assert ilp_free(paper(7)).finish_ns[5] - 5 == 22


def test_stop_the_world_shares_whole_batches_once_all_is_loaded() -> None:
    found = stop_the_world(paper(7))  # the last layer is there at 36
    assert found.finish_ns == (7, 14, 21, 28, 35, 42, 43)
    assert found.target_layers == (0, 0, 0, 0, 0, 0, 7)


def test_of_two_that_could_begin_a_batch_at_once_the_source_does() -> None:
    found = stop_the_world(LiveView(4, 1, (5, 5, 5), loaded=4))
    assert (found.target_layers, found.finish_ns) == ((0, 4, 0), (20, 20, 40))


def test_more_than_one_layer_at_first_cannot_be_run() -> None:
    """Eq. 1 with T_1 free claims 17.43 for this split."""
    assert replay(paper(7), (3, 1, 2, 3, 4, 4, 5)).mean_ns == Fraction(213, 7)


@pytest.mark.parametrize(("batches", "total"), [(6, 108), (7, 137)])
def test_no_split_is_better_than_ilp_free_in_the_example(batches: int, total: int) -> None:
    assert least_mean(7, 6, batches) == ilp_free(paper(batches)).mean_ns == Fraction(total, batches)


def test_a_split_can_be_better_than_ilp_free_when_loads_are_fast() -> None:
    assert least_mean(6, 2, 6) == Fraction(25, 2) < ilp_free(LiveView(6, 2, (1,) * 6)).mean_ns


# ---- oracles


@given(views(ones(9)))
def test_ilp_free_is_the_tick_simulation(view: LiveView) -> None:
    found = ilp_free(view)
    assert (list(found.finish_ns), list(found.target_layers)) == by_ticks(view)


@given(st.data(), st.integers(2, 8), st.integers(1, 9))
def test_replay_of_equal_batches_fills_free_ticks(data: st.DataObject, layers: int, load: int) -> None:
    split = data.draw(st.lists(st.integers(0, layers), min_size=1, max_size=8))
    view = LiveView(layers, load, (1,) * len(split))
    assert list(replay(view, split).finish_ns) == by_slots(layers, load, split)


def test_replay_with_weights_by_hand() -> None:
    """3 layers, loads every 4; batch 1 layers of 2, batch 2 of 3, batch 3 of 1.

    Target: 1a 0-2, 2a 2-5, 2b 5-8, 3a 8-9, 3b 9-10, 3c 10-11. Source: 1 from 2 to 6, 2 from 8 to 11.
    """
    found = replay(LiveView(3, 4, (2, 3, 1)), (1, 2, 3))
    assert found.finish_ns == (6, 11, 11)


def test_ilp_free_with_weights_by_hand() -> None:
    """3 layers, loads every 4. Target: 1a 0-2, 2a 2-3, 3a 3-6, 3b 6-9. Source: 1 from 2 to 6, 2 to 8.

    At 8 batch 3 is on the target, in the middle of a layer: the source waits until 9 and ends at 12.
    """
    found = ilp_free(LiveView(3, 4, (2, 1, 3)))
    assert found.target_layers == (1, 1, 2)
    assert found.finish_ns == (6, 8, 12)


def test_an_idle_source_waits_for_the_layer_of_the_earliest_batch_and_takes_no_later_one() -> None:
    """7 layers of 10, loads every 62; batch 1 has layers of 11, and its source part ends at 77.

    Target: 1a 0-11, 2a 11-21, 3a 21-31, 4a 31-41, 5a 41-51, 6a 51-61, 7a 61-71, 2b 71-81, 3b 81-91 and so on.
    Source: 1 from 11 to 77. Then 2 runs on the target until 81: it waits, and runs 2 to 131, not 3 first.
    """
    found = ilp_free(LiveView(7, 62, (11, 10, 10, 10, 10, 10, 10)))
    assert found.finish_ns[:2] == (77, 131)
    assert list(found.finish_ns) == sorted(found.finish_ns)


# ---- laws


@given(views_and_splits())
def test_nobody_finishes_before_its_layers_or_after_all_work_in_turn(
    drawn: tuple[LiveView, tuple[int, ...]],
) -> None:
    view, split = drawn
    found = replay(view, split)
    whole = [view.layers * layer_ns for layer_ns in view.batch_layer_ns]
    there = [max(0, view.arrived_ns(batch)) for batch in range(view.batches)]
    all_loaded = (view.layers - view.loaded) * view.layer_load_ns
    for finish_ns, whole_ns, there_ns in zip(found.finish_ns, whole, there):
        assert there_ns + whole_ns <= finish_ns <= max(all_loaded, *there) + sum(whole)
    assert found.target_layers == split


@given(views(ones(8)), st.data())
def test_slower_loading_makes_nobody_faster(view: LiveView, data: st.DataObject) -> None:
    """Of equal batches that the source ends: one all the target's can profit from the gaps of one before."""
    split = [data.draw(st.integers(0, view.layers - 1)) for _ in range(view.batches)]
    slower = LiveView(
        view.layers,
        view.layer_load_ns + data.draw(st.integers(1, 9)),
        view.batch_layer_ns,
        view.arrival_ns,
        view.loaded,
    )
    before, after = replay(view, split).finish_ns, replay(slower, split).finish_ns
    assert all(late >= early for early, late in zip(before, after))


@given(views_and_splits(), st.integers(2, 10**6))
def test_times_scale_exactly(drawn: tuple[LiveView, tuple[int, ...]], factor: int) -> None:
    view, split = drawn
    longer = LiveView(
        view.layers,
        view.layer_load_ns * factor,
        tuple(layer_ns * factor for layer_ns in view.batch_layer_ns),
        tuple(arrival_ns * factor for arrival_ns in view.arrival_ns),
        view.loaded,
    )
    for schedule in (lambda one: replay(one, split), ilp_free, best_effort, stop_the_world):
        once, scaled = schedule(view), schedule(longer)
        assert scaled.finish_ns == tuple(finish_ns * factor for finish_ns in once.finish_ns)
        assert scaled.target_layers == once.target_layers


@given(st.integers(2, 40), st.data())
def test_a_saturated_pair_finishes_one_batch_per_layers_left(layers: int, data: st.DataObject) -> None:
    """k loaded layers, at most half: throughput 1 / (L - k), where one instance has 1 / L."""
    loaded = data.draw(st.integers(1, layers // 2))
    view = LiveView(layers, FOREVER_NS, (1,) * 30, loaded=loaded)
    for finish_ns in (ilp_free(view).finish_ns, best_effort(view).finish_ns):
        gaps = [later - earlier for earlier, later in pairwise(finish_ns[10:])]
        assert set(gaps) == {layers - loaded}


@settings(max_examples=30)
@given(st.integers(2, 24), st.data())
def test_a_saturated_pair_with_more_than_half_has_double_throughput(layers: int, data: st.DataObject) -> None:
    loaded, batches = data.draw(st.integers(layers // 2 + 1, layers)), 40
    view = LiveView(layers, FOREVER_NS, (1,) * batches, loaded=loaded)
    assert 0 <= max(ilp_free(view).finish_ns) - batches * layers / 2 <= layers


# ---- schedulers


@pytest.mark.parametrize(
    ("scheduler", "rule", "schedule"),
    [
        (IlpFree(), "pull", ilp_free),
        (BestEffort(), "split", best_effort),
        (StopTheWorld(), "stop", stop_the_world),
    ],
)
def test_a_scheduler_tells_its_rule_and_forecast(
    scheduler: LiveScheduler, rule: str, schedule: Callable[[LiveView], Schedule]
) -> None:
    plan, expected = scheduler.plan(paper(7)), schedule(paper(7))
    assert (plan.rule, plan.target_layers, plan.finish_ns) == (
        rule,
        expected.target_layers,
        expected.finish_ns,
    )
    assert plan.reason


@pytest.mark.parametrize("scheduler", [IlpFree(), BestEffort(), StopTheWorld()])
def test_nothing_may_wait(scheduler: LiveScheduler) -> None:
    assert scheduler.plan(LiveView(7, 6, ())).finish_ns == ()


@pytest.mark.parametrize(
    "wrong",
    [
        (1, 6, (1,)),
        (7, 0, (1,)),
        (7, 6, (1, 0)),
        (7, 6, (1, 1), (0,)),
        (7, 6, (1,), (), 0),
        (7, 6, (1,), (), 8),
    ],
)
def test_a_view_that_cannot_be_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        LiveView(*wrong)


@pytest.mark.parametrize("split", [(1,), (1, 8), (-1, 1)])
def test_a_split_that_cannot_be_is_refused(split: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a split of 2 batches has as many numbers from 0 to 7"):
        replay(paper(2), split)
