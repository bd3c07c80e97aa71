"""Batches of different sizes in the stages: rounds are added at once though their steps grow differently."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.vocabulary.units import NS_PER_S
from simcore.pipeline.flow_shop import FOREVER, FlowShop
from simcore.pipeline.lane import Lane, rounds_not_negative
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows

STEPS = 3000
SLOW = replace(ToyRows(1000 * NS, 0, 0, 1000 * NS, 0), slope=NS // 1000)


def one_by_one(sizes: tuple[int, ...], starts: list[int], stages: int) -> int:
    """When the first batch has made all its steps."""
    free, ready = [0] * stages, list(starts)
    contexts = [400] * len(sizes)
    for _ in range(STEPS):
        for batch, size in enumerate(sizes):
            at = ready[batch]
            for stage in range(stages):
                at = max(at, free[stage]) + SLOW.intercept + SLOW.slope * contexts[batch]
                free[stage] = at
            ready[batch] = at
            contexts[batch] += size
    return ready[0]


@pytest.mark.parametrize("later", [0, 1 << 70])
@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (3, 5, 4), (1, 9, 2), (2, 2, 7, 3)])
def test_batches_that_grow_differently_are_added_up_until_they_meet(
    sizes: tuple[int, ...], later: int
) -> None:
    """``later``: the times in the shop count from another moment then."""
    stages = ToyStages((SLOW,) * 5, 0, 0)
    shop, lanes = FlowShop(5), list[Lane]()
    starts = [batch * 1200 * NS for batch in range(len(sizes))]
    for batch, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        lane = Lane(batch, 5)
        lane.set_decodes(stages, size, 400)
        lane.left = STEPS
        lanes.append(lane)
        shop.enter(lane, later + start)
    shop.keep()
    middle = later + one_by_one(sizes, starts, 5) // 2
    assert shop.origin + shop.advance(middle).done >= middle
    shop.back()
    first = shop.advance(FOREVER)
    assert (first.index, first.steps, shop.origin) == (0, STEPS, later)
    assert shop.origin + first.done == later + one_by_one(sizes, starts, 5)
    assert max(len(lane.gaps()) for lane in lanes) < 60


def each_end(costs: list[tuple[int, int]], sizes: list[int], starts: list[int], hop: int) -> list[list[int]]:
    """When each step of each batch ends, for 300 steps; (intercept, slope) of the stages."""
    free, found = [0] * len(costs), [[start] for start in starts]
    for step in range(300):
        for ends, size in zip(found, sizes, strict=True):
            at = ends[-1]
            for stage, (intercept, slope) in enumerate(costs):
                at = max(at + (hop if stage else 0), free[stage]) + intercept + slope * (400 + step * size)
                free[stage] = at
            ends.append(at)
    return found


def told_ends(lane: Lane, start: int) -> list[int]:
    ends = [start]
    for first, slope, count in lane.gaps():
        for step in range(count):
            ends.append(ends[-1] + first + slope * step)
    return ends


def test_times_count_from_later_on_while_batches_are_in_flight() -> None:
    """What ends when is the same."""
    tenth = replace(SLOW, intercept=NS_PER_S // 10 * NS)
    stages, told = ToyStages((tenth,) * 5, 0, 0), list[tuple[int, list[int]]]()
    for keeps in (False, True):
        shop, ends = FlowShop(5), list[int]()
        for batch in range(4):
            lane = Lane(batch, 5)
            lane.set_decodes(stages, 3 + batch, 400)
            lane.left = STEPS
            shop.enter(lane, batch * 1200 * NS)
        for moment in range(1, 40):
            lane = shop.advance(moment << 57)
            ends.append(shop.origin + lane.done)
            lane.set_decodes(stages, 3 + lane.index, 400)
            shop.enter(lane, ends[-1])
            if keeps:
                shop.keep()
        told.append((shop.computed(), ends))
        assert (shop.origin > 0) == keeps
    assert told[0] == told[1]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(80, 120), st.integers(0, 3)), min_size=1, max_size=4),
    st.tuples(st.integers(60, 300), st.integers(0, 3)),
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.lists(st.integers(0, 900), min_size=3, max_size=3),
    st.integers(0, 20),
    st.integers(0, 300_000),
)
def test_where_batches_queue_up_at_the_last_stage_every_step_ends_when_it_does_one_by_one(
    first: list[tuple[int, int]],
    last: tuple[int, int],
    sizes: list[int],
    apart: list[int],
    hop: int,
    until: int,
) -> None:
    costs = [(intercept * 1000, slope) for intercept, slope in [*first, last]]
    rows = tuple(ToyRows(intercept, 0, slope, 1, 0) for intercept, slope in costs)
    starts = [sum(apart[:batch]) * 1000 for batch in range(len(sizes))]
    ends = each_end(costs, sizes, starts, hop)
    stages, shop, lanes = ToyStages(rows, hop, 0), FlowShop(len(rows)), list[Lane]()
    for batch, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        lane = Lane(batch, len(rows))
        lane.set_decodes(stages, size, 400)
        lane.left = 300 - 40 * batch
        lanes.append(lane)
        shop.enter(lane, start)
    shop.keep()
    for moment in (until * 1000, FOREVER):
        found = shop.advance(moment)
        assert found.left == 0 or found.done >= moment
        assert found.done == min(
            [ends[one.index][one.steps + (one is not found)] for one in lanes if one.left or one is found]
        )
        for lane, start in zip(lanes, starts, strict=True):
            assert told_ends(lane, start) == ends[lane.index][: lane.steps + 1]
        shop.back()


@pytest.mark.parametrize("value", [-1, 0, 7, 1000])
@pytest.mark.parametrize("change", [-90, -7, -1, 0, 3, 50])
@pytest.mark.parametrize("curve", [-9, -1, 0, 1, 6])
def test_a_parabola_is_above_zero_for_as_long_as_is_said(value: int, change: int, curve: int) -> None:
    """Never for longer; and where it does not turn upwards, not for less."""
    found = rounds_not_negative(value, change, curve, 400)
    values = [value + change * k + curve * (k * (k - 1) // 2) for k in range(401)]
    above = next((k for k, one in enumerate(values) if one < 0), 400)
    assert found <= min(above, 400)
    if curve <= 0:
        assert found == min(above, 400)
