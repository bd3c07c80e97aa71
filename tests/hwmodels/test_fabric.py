"""The fabric over time: closed forms, latency, ties, failures, priorities, and what it counts."""

import math
from random import Random

import pytest

from hwmodels.errors import HardwareError
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import ACTIVATIONS, KV, PARAMETERS, Finished, FlowSpec
from tests.worlds.refusals import refuses

GBPS = 1e9 / 8


def run(fabric: Fabric) -> list[Finished]:
    """Everything that finishes, call by call, as a driver would."""
    done: list[Finished] = []
    while (at_s := fabric.next_completion_s()) < math.inf:
        done += fabric.advance(at_s)
        fabric.check()
    return done


@pytest.mark.parametrize("out_links", [1, 3])
def test_the_tree_of_a_broadcast_moves_at_the_rate_of_its_slowest_branch(out_links: int) -> None:
    fabric = Fabric([10.0, *[4.0 + branch for branch in range(out_links)]])
    fabric.start(FlowSpec(tuple(range(out_links + 1)), 8.0), 0.0)
    assert run(fabric) == [Finished(0, 2.0)]


def test_the_links_are_free_during_the_latency() -> None:
    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 20.0), 0.0)
    late = fabric.start(FlowSpec((0,), 10.0, latency_s=1.0), 0.0)
    assert (fabric.rate(0), fabric.rate(late), fabric.flows_on(0)) == (10.0, 0.0, (0,))
    assert fabric.advance(1.0) == []
    assert (fabric.rate(0), fabric.rate(late), fabric.flows_on(0)) == (5.0, 5.0, (0, 1))
    assert fabric.remaining(0) == 10.0
    assert fabric.advance(10.0) == [Finished(0, 3.0), Finished(1, 3.0)]


def test_nothing_to_carry_or_nowhere_to_go_takes_the_latency_only() -> None:
    fabric = Fabric([0.0])
    fabric.start(FlowSpec((), 5.0), 1.0)
    fabric.start(FlowSpec((), 5.0, latency_s=0.5), 1.0)
    fabric.start(FlowSpec((0,), 0.0, latency_s=0.25), 1.0)
    assert fabric.next_completion_s() == 1.0
    assert run(fabric) == [Finished(0, 1.0), Finished(2, 1.25), Finished(1, 1.5)]


def test_ties_come_by_number_whatever_the_order_of_their_links() -> None:
    fabric = Fabric([8.0] * 5)
    for number in (3, 1, 4, 0, 2):
        fabric.start(FlowSpec((number,), 16.0), 0.0)
    assert fabric.advance(2.0) == [Finished(number, 2.0) for number in range(5)]


def test_abort_says_what_was_moved_and_gives_the_rest_to_others() -> None:
    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 100.0), 0.0)
    fabric.start(FlowSpec((0,), 100.0), 0.0)
    assert fabric.abort(0, 4.0) == 20.0
    assert fabric.rate(1) == 10.0
    assert run(fabric) == [Finished(1, 12.0)]


def test_what_is_aborted_as_it_ends_has_moved_all_and_is_not_reported() -> None:
    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 10.0), 0.0)
    waiting = fabric.start(FlowSpec((0,), 10.0, latency_s=9.0), 0.0)
    assert fabric.abort(0, 1.0) == 10.0
    assert fabric.abort(waiting, 2.0) == 0.0
    assert fabric.advance(50.0) == []
    with pytest.raises(AssertionError):
        fabric.abort(0, 50.0)


def test_what_finished_unasked_is_kept() -> None:
    fabric = Fabric([10.0])
    fabric.start(FlowSpec((0,), 10.0), 0.0)
    fabric.start(FlowSpec((0,), 10.0), 5.0)
    assert fabric.next_completion_s() == 5.0
    assert fabric.advance(5.0) == [Finished(0, 1.0)]
    assert fabric.advance(5.0) == []


def test_time_does_not_go_back() -> None:
    fabric = Fabric([10.0], start_s=4.0)
    assert fabric.now_s == 4.0
    refuses(AssertionError, "goes back", fabric.start, FlowSpec((0,), 1.0), 3.0)


def test_carried_bytes_peaks_and_series() -> None:
    fabric = Fabric([10.0, 20.0, 0.0])
    fabric.watch(1)
    fabric.start(FlowSpec((0, 1), 30.0, kind=KV), 0.0)
    fabric.start(FlowSpec((1,), 10.0, kind=ACTIVATIONS, cap_bytes_per_s=5.0), 1.0)
    fabric.advance(2.0)
    assert fabric.carried_bytes(1, KV) == fabric.carried_bytes(0, KV) == 20.0
    assert fabric.carried_bytes(1, ACTIVATIONS) == 5.0
    assert fabric.carried_bytes(1, PARAMETERS) == 0.0
    run(fabric)
    assert (fabric.carried_bytes(1, KV), fabric.carried_bytes(1, ACTIVATIONS)) == (30.0, 10.0)
    assert [fabric.peak_share(link) for link in range(3)] == [1.0, 0.75, 0.0]
    assert fabric.series(1) == [(0.0, 10.0), (1.0, 15.0), (3.0, 0.0)]


@pytest.mark.parametrize("capacity", [-1.0, math.inf, math.nan])
def test_a_capacity_that_is_none_is_refused(capacity: float) -> None:
    refuses(HardwareError, "link 1", Fabric, [1.0, capacity])
    refuses(HardwareError, "link 0", Fabric([1.0]).set_capacity, 0, capacity, 0.0)


def test_a_flow_that_is_not_stopped_is_found_by_the_check() -> None:
    fabric = Fabric([10.0, 10.0])
    fabric.start(FlowSpec((0,), 100.0), 0.0)
    fabric.check()
    fabric._moving[0].rate = 9.0
    refuses(AssertionError, "neither a link nor its cap limits it", fabric.check)
    fabric._moving[0].rate = 11.0
    refuses(AssertionError, "link 0 carries", fabric.check)


def test_many_short_flows_leave_nothing_behind() -> None:
    random = Random(1)
    fabric = Fabric([1e9] * 8)
    now_s = 0.0
    for _ in range(20_000):
        fabric.start(FlowSpec(tuple(random.sample(range(8), 2)), 1e3), now_s)
        now_s += random.expovariate(1e6)
        fabric.advance(now_s)
    run(fabric)
    assert sum(fabric.carried_bytes(link, PARAMETERS) for link in range(8)) == 2 * 20_000 * 1e3
    assert all(fabric.used(link) == 0.0 and fabric.flows_on(link) == () for link in range(8))
    assert len(fabric._agenda.entries) <= 64


def test_a_capacity_far_below_the_rounding_of_the_one_before_is_used_up() -> None:
    fabric = Fabric([4e25, 4e25])
    fabric.start(FlowSpec((0, 1), 1.0), 0.0)
    for link in (0, 1):
        fabric.set_capacity(link, 1e-6, 0.0)
        fabric.check()
    assert fabric.used(1) == 1e-6


def test_a_repaired_link_moves_who_waits_on_it_and_who_came_at_that_moment() -> None:
    fabric = Fabric([1.0])
    waiting = fabric.start(FlowSpec((0,), 10.0), 0.0)
    fabric.set_capacity(0, 0.0, 0.5)
    assert fabric.next_completion_s() == math.inf
    comes = fabric.start(FlowSpec((0,), 10.0), 1.0)
    fabric.set_capacity(0, 2.0, 1.0)
    assert [fabric.rate(flow) for flow in (waiting, comes)] == [1.0, 1.0]
