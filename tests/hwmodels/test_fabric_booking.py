"""Flows that book their links during their latency: nothing but the number of events may tell."""

import math
from random import Random

import pytest

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import KINDS, KV, Finished, FlowSpec
from tests.worlds.drawing import on_drawn_seeds

LINKS = 4


def unbooked(capacities: list[float]) -> Fabric:
    """A fabric on which nobody books: its links are watched."""
    fabric = Fabric(capacities)
    for link in range(len(capacities)):
        fabric.watch(link)
    return fabric


def stops(fabric: Fabric) -> list[float]:
    """The times at which it wants to be asked, until nothing moves."""
    times = []
    while not math.isinf(next_s := fabric.next_completion_s()):
        times.append(next_s)
        fabric.advance(next_s)
    return times


def test_alone_on_its_links_a_flow_is_one_event() -> None:
    spec = FlowSpec((0, 1), 20.0, KV, latency_s=1.0)
    free, watched = Fabric([10.0, 5.0]), unbooked([10.0, 5.0])
    for fabric in (free, watched):
        fabric.start(spec, 0.0)
    assert (stops(free), stops(watched)) == ([5.0], [1.0, 5.0])
    assert free.carried_bytes(0, KV) == watched.carried_bytes(0, KV) == 20.0
    assert [free.peak_share(link) for link in (0, 1)] == [0.5, 1.0]


@pytest.mark.parametrize("comes_s", [0.5, 1.0, 2.0])
def test_who_comes_shares_with_it_as_if_nothing_had_been_booked(comes_s: float) -> None:
    for fabric in (Fabric([10.0]), unbooked([10.0])):
        fabric.start(FlowSpec((0,), 20.0, latency_s=1.0), 0.0)
        fabric.start(FlowSpec((0,), 20.0), comes_s)
        fabric.check()
        assert stops(fabric)[-1] == pytest.approx({0.5: 4.5, 1.0: 5.0, 2.0: 5.0}[comes_s])
        assert fabric.carried_bytes(0, "parameters") == 40.0


def test_what_is_asked_during_the_latency_and_after_it() -> None:
    fabric = Fabric([10.0])
    flow = fabric.start(FlowSpec((0,), 20.0, KV, latency_s=1.0), 0.0)
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
    flow = fabric.start(FlowSpec((0,), 20.0, KV, latency_s=1.0), 0.0)
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
    fabric, spec = Fabric([10.0]), FlowSpec((0,), 0.0, KV)
    fabric.start(spec, 0.0, 20.0)
    assert fabric.advance(9.0) == [Finished(0, 2.0)] and fabric.carried_bytes(0, KV) == 20.0


@on_drawn_seeds(range(30))
def test_drawn_runs_are_alike_with_and_without_booking(seed: int) -> None:
    random = Random(seed)
    capacities = [random.choice((1.0, 2.0, 3.5)) for _ in range(LINKS)]
    free, watched = Fabric(capacities), unbooked(capacities)
    ended: tuple[list[Finished], list[Finished]] = ([], [])
    now_s, alive = 0.0, set[int]()
    for _ in range(60):
        now_s += random.choice((0.0, 0.25, 0.5, random.random() * 3))
        for fabric, log in ((free, ended[0]), (watched, ended[1])):
            log += fabric.advance(now_s)
        alive -= {one.flow for one in ended[0]}
        kind = random.random()
        if alive and kind < 0.15:
            flow = random.choice(sorted(alive))
            alive.discard(flow)
            assert free.abort(flow, now_s) == pytest.approx(watched.abort(flow, now_s), abs=1e-9)
        elif kind < 0.25:
            link, capacity = random.randrange(LINKS), random.choice((0.0, 1.0, 4.0))
            for fabric in (free, watched):
                fabric.set_capacity(link, capacity, now_s)
        elif kind < 0.35:
            link = random.randrange(LINKS)
            assert free.used(link) == pytest.approx(watched.used(link))
        else:
            links = tuple(random.sample(range(LINKS), random.choice((1, 1, 2))))
            spec = FlowSpec(links, random.choice((0.5, 2.0, 3.0)), latency_s=random.choice((0.0, 0.25, 1.0)))
            assert len({fabric.start(spec, now_s) for fabric in (free, watched)}) == 1
            alive.add(free.start(spec, now_s))
            watched.start(spec, now_s)
    for fabric, log in ((free, ended[0]), (watched, ended[1])):
        for link in range(LINKS):
            fabric.set_capacity(link, 2.0, now_s)
        log += fabric.advance(1e4)
    assert [one.flow for one in ended[0]] == [one.flow for one in ended[1]] and len(ended[0]) > 20
    assert [one.at_s for one in ended[0]] == pytest.approx([one.at_s for one in ended[1]], abs=1e-9)
    for link in range(LINKS):
        for kind in KINDS:
            assert free.carried_bytes(link, kind) == pytest.approx(
                watched.carried_bytes(link, kind), abs=1e-6
            )
        assert free.peak_share(link) == pytest.approx(watched.peak_share(link))
