"""Flows that book their links during their latency: nothing but the number of events may tell."""

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import KINDS, KV, PARAMETERS, Finished, FlowSpec
from tests.worlds.drawing import on_drawn_seeds

LINKS = 4


class Unbooked:
    """A fabric on which no booking lasts: who is on a link is asked after every start."""

    def __init__(self, capacities: list[float]) -> None:
        self._fabric = Fabric(capacities)

    def start(self, spec: FlowSpec, now_s: float) -> int:
        flow = self._fabric.start(spec, now_s)
        for link in spec.links:
            self._fabric.flows_on(link)
        return flow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)


def watched(capacities: list[float]) -> Fabric:
    """All its links are watched."""
    fabric = Fabric(capacities)
    for link in range(len(capacities)):
        fabric.watch(link)
    return fabric


def stops(fabric: Fabric | Unbooked) -> list[float]:
    """The times at which it wants to be asked, until nothing moves."""
    times = []
    while not math.isinf(next_s := fabric.next_completion_s()):
        times.append(next_s)
        fabric.advance(next_s)
    return times


def test_alone_on_its_links_a_flow_is_one_event() -> None:
    spec = FlowSpec((0, 1), 20.0, kind=KV, latency_s=1.0)
    free, unbooked = Fabric([10.0, 5.0]), Unbooked([10.0, 5.0])
    for fabric in (free, unbooked):
        fabric.start(spec, 0.0)
    assert (stops(free), stops(unbooked)) == ([5.0], [1.0, 5.0])
    assert free.carried_bytes(0, KV) == unbooked.carried_bytes(0, KV) == 20.0
    assert [free.peak_share(link) for link in (0, 1)] == [0.5, 1.0]


@pytest.mark.parametrize("comes_s", [0.5, 1.0, 2.0])
def test_who_comes_shares_with_it_as_if_nothing_had_been_booked(comes_s: float) -> None:
    for fabric in (Fabric([10.0]), Unbooked([10.0])):
        fabric.start(FlowSpec((0,), 20.0, latency_s=1.0), 0.0)
        fabric.start(FlowSpec((0,), 20.0), comes_s)
        fabric.check()
        assert stops(fabric)[-1] == pytest.approx({0.5: 4.5, 1.0: 5.0, 2.0: 5.0}[comes_s])
        assert fabric.carried_bytes(0, "parameters") == 40.0


def test_what_is_asked_during_the_latency_and_after_it() -> None:
    fabric = Fabric([10.0])
    flow = fabric.start(FlowSpec((0,), 20.0, kind=KV, latency_s=1.0), 0.0)
    fabric.advance(0.5)
    assert (fabric.rate(flow), fabric.used(0), fabric.flows_on(0), fabric.remaining(flow)) == (
        0.0,
        0.0,
        (),
        20.0,
    )
    fabric.advance(2.0)
    assert (fabric.rate(flow), fabric.used(0), fabric.flows_on(0), fabric.remaining(flow)) == (
        10.0,
        10.0,
        (0,),
        10.0,
    )
    fabric = Fabric([10.0])
    flow = fabric.start(FlowSpec((0,), 20.0, kind=KV, latency_s=1.0), 0.0)
    fabric.advance(2.0)
    assert (fabric.carried_bytes(0, KV), fabric.peak_share(0)) == (10.0, 1.0)
    assert fabric.abort(flow, 2.5) == 15.0
    assert fabric.next_completion_s() == math.inf


def test_a_link_that_fails_or_recovers_changes_a_booked_flow() -> None:
    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 20.0, latency_s=1.0), 0.0)
    fabric.set_capacity(0, 0.0, 2.0)
    assert fabric.next_completion_s() == math.inf
    fabric.set_capacity(0, 5.0, 3.0)
    assert fabric.advance(9.0) == [Finished(0, 5.0)]


def test_a_size_of_its_own_stands_for_that_of_the_spec() -> None:
    fabric, spec = Fabric([10.0]), FlowSpec((0,), 0.0, kind=KV)
    fabric.start(spec, 0.0, 20.0)
    assert fabric.advance(9.0) == [Finished(0, 2.0)] and fabric.carried_bytes(0, KV) == 20.0


@on_drawn_seeds(range(12))
def test_drawn_runs_are_alike_with_and_without_booking(seed: int) -> None:
    capacities = drawn_capacities(seed)
    free, unbooked = Fabric(capacities), Unbooked(capacities)
    ended, other = played(seed, (free, unbooked))
    assert [one.flow for one in ended] == [one.flow for one in other] and len(ended) > 20
    assert [one.at_s for one in ended] == pytest.approx([one.at_s for one in other], abs=1e-9)
    for link in range(LINKS):
        for kind in KINDS:
            assert free.carried_bytes(link, kind) == pytest.approx(
                unbooked.carried_bytes(link, kind), abs=1e-6
            )
        assert free.peak_share(link) == pytest.approx(unbooked.peak_share(link))


@on_drawn_seeds(range(12))
def test_who_watches_changes_nothing_and_sees_every_byte(seed: int) -> None:
    capacities = drawn_capacities(seed)
    free, seen = Fabric(capacities), watched(capacities)
    ended, other = played(seed, (free, seen))
    assert ended == other and len(ended) > 20
    for link in range(LINKS):
        points = seen.series(link)
        assert [at_s for at_s, _ in points] == sorted({at_s for at_s, _ in points})
        carried = sum(rate * (till_s - at_s) for (at_s, rate), (till_s, _) in pairwise(points))
        assert carried == pytest.approx(sum(free.carried_bytes(link, kind) for kind in KINDS), abs=1e-6)
        assert points[-1][1] == 0.0


def drawn_capacities(seed: int) -> list[float]:
    random = Random(seed)
    return [random.choice((1.0, 2.0, 3.5)) for _ in range(LINKS)]


def played(seed: int, fabrics: Sequence[Any]) -> tuple[list[Finished], ...]:
    """The same starts, aborts and changes of links on each of them; what finished where."""
    random, ended = Random(seed), tuple(list[Finished]() for _ in fabrics)
    now_s, alive = 0.0, set[int]()
    for _ in range(60):
        now_s += random.choice((0.0, 0.25, 0.5, random.random() * 3))
        for fabric, log in zip(fabrics, ended, strict=True):
            log += fabric.advance(now_s)
        alive -= {one.flow for one in ended[0]}
        kind = random.random()
        if alive and kind < 0.15:
            flow = random.choice(sorted(alive))
            alive.discard(flow)
            first, *others = [fabric.abort(flow, now_s) for fabric in fabrics]
            assert others == pytest.approx([first] * len(others), abs=1e-9)
        elif kind < 0.25:
            link, capacity = random.randrange(LINKS), random.choice((0.0, 1.0, 4.0))
            for fabric in fabrics:
                fabric.set_capacity(link, capacity, now_s)
        elif kind < 0.35:
            link = random.randrange(LINKS)
            first, *others = [fabric.used(link) for fabric in fabrics]
            assert others == pytest.approx([first] * len(others))
        else:
            links = tuple(random.sample(range(LINKS), random.choice((1, 1, 2))))
            spec = FlowSpec(links, random.choice((0.5, 2.0, 3.0)), latency_s=random.choice((0.0, 0.25, 1.0)))
            for _ in range(2):
                (flow,) = {fabric.start(spec, now_s) for fabric in fabrics}
            alive.add(flow)
    for fabric, log in zip(fabrics, ended, strict=True):
        for link in range(LINKS):
            fabric.set_capacity(link, 2.0, now_s)
        log += fabric.advance(1e4)
    return ended


def test_who_holds_links_is_told_before_another_uses_them() -> None:
    told = list[float]()

    def tell(at_s: float) -> None:
        told.append(at_s)
        fabric.let_go((1, 2), PARAMETERS, 6.0, 3.0)

    fabric = Fabric([10.0] * 4)
    fabric.start(FlowSpec((2,), 20.0, latency_s=1.0), 0.0)
    assert not fabric.hold((1, 2), tell), "a flow has booked one of them"
    fabric.advance(9.0)
    changes = (
        lambda: fabric.start(FlowSpec((1,), 1.0, latency_s=0.5), 10.0),
        lambda: fabric.set_capacity(3, 5.0, 20.0),
        lambda: fabric.used(2),
        lambda: fabric.hold((0, 1), tell),
    )
    for number, change in enumerate(changes):
        assert fabric.hold((1, 2), tell) and fabric.hold((3,), tell) is True
        fabric.let_go((3,), PARAMETERS, 0.0, 0.0)
        change()
        assert len(told) == number + 1
        fabric.advance(fabric.now_s + 5.0)
    assert told[:2] == [10.0, 20.0]
    assert fabric.carried_bytes(1, PARAMETERS) == 4 * 6.0 + 1.0
    assert fabric.peak_share(2) == 1.0


def test_a_flow_that_waited_for_its_latency_ends_a_hold_when_it_joins() -> None:
    told = list[float]()

    def tell(at_s: float) -> None:
        told.append(at_s)
        fabric.let_go((0,), PARAMETERS, 0.0, 1.0)

    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 20.0, latency_s=1.0), 0.0)
    fabric.flows_on(0)  # it has booked nothing any more
    assert fabric.hold((0,), tell)
    assert fabric.advance(0.5) == [] and not told
    assert fabric.advance(9.0) == [Finished(0, 3.0)] and told == [1.0]


def test_a_remembered_flow_tells_when_its_parts_had_moved_and_may_be_shortened() -> None:
    fabric = Fabric([10.0])
    flow = fabric.start(FlowSpec((0,), 100.0, latency_s=1.0), 0.0)
    fabric.remember(flow)
    assert fabric.passed_s(flow, [10.0] * 10, 0.5) == []
    fabric.start(FlowSpec((0,), 10.0), 2.0)  # half the rate until 4
    fabric.set_capacity(0, 0.0, 4.5)
    fabric.set_capacity(0, 10.0, 5.5)
    assert fabric.passed_s(flow, [10.0] * 10, 6.0) == pytest.approx([2.0, 4.0, 6.0])
    fabric.shorten(flow, 40.0)
    assert fabric.remaining(flow) == pytest.approx(10.0)
    assert [done.at_s for done in fabric.advance(20.0) if done.flow == flow] == pytest.approx([7.0])
    assert fabric.carried_bytes(0, PARAMETERS) == pytest.approx(50.0)
