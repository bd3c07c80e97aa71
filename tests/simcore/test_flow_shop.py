"""Batches of different sizes in the stages: rounds are added at once though their steps grow differently."""

from dataclasses import replace

import pytest

from simcore.pipeline.flow_shop import FOREVER, FlowShop
from simcore.pipeline.lane import Lane
from simcore.pipeline.parabola import rounds_not_negative
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


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (3, 5, 4), (1, 9, 2), (2, 2, 7, 3)])
def test_batches_that_grow_differently_are_added_up_until_they_meet(sizes: tuple[int, ...]) -> None:
    stages = ToyStages((SLOW,) * 5, 0, 0)
    shop, lanes = FlowShop(5), list[Lane]()
    starts = [batch * 1200 * NS for batch in range(len(sizes))]
    for batch, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        lane = Lane(batch, 5)
        lane.set_decodes(stages, size, 400)
        lane.left, lane.last = STEPS, start
        lanes.append(lane)
        shop.enter(lane, start)
    first = shop.advance(FOREVER)
    assert (first.index, first.steps) == (0, STEPS)
    assert first.done == one_by_one(sizes, starts, 5)
    assert max(len(lane.gaps) for lane in lanes) < 60


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
