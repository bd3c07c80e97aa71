"""Requests of higher priority wait before the others and are preempted after them (engines by priority)."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.batching import ChunkedPrefill, PrefillFirst
from serving.engine.progress import Progress
from serving.engine.waiting import line_up, queue_first, queue_up
from serving.protocols.batch import Batch, Batcher, ReplicaView
from serving.vocabulary.actions import Interrupt, Preempt, Run
from serving.vocabulary.request import Request
from tests.worlds.engine_script import ID, Script, chunked, run
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import cases
from tests.worlds.world import simulate


def one(request: int, priority: int) -> Progress:
    return Progress(Request(request, request, 4, 30, "m", priority), "priority")


@given(drawn=st.lists(st.tuples(st.integers(-2, 2), st.booleans()), max_size=12))
@settings(max_examples=50)
def test_a_queue_is_by_priority_then_preempted_then_first_come(drawn: list[tuple[int, bool]]) -> None:
    queue = deque[Progress]()
    for number, (priority, preempted) in enumerate(drawn):
        (queue_first if preempted else queue_up)(queue, one(number, priority))
    came = list(enumerate(drawn))
    first = [(-priority, 0, -number, number) for number, (priority, preempted) in came if preempted]
    then = [(-priority, 1, number, number) for number, (priority, preempted) in came if not preempted]
    assert [progress.id for progress in queue] == [number for *_, number in sorted(first + then)]


@given(priorities=st.lists(st.integers(-2, 2), max_size=12))
def test_a_common_queue_is_by_priority_then_first_come(priorities: list[int]) -> None:
    by_priority, by_arrival = deque[Request](), deque[Request]()
    requests = [Request(id, id, 4, 30, "m", priority) for id, priority in enumerate(priorities)]
    line_up(by_priority, requests, True)
    line_up(by_arrival, requests, False)
    assert list(by_priority) == sorted(requests, key=lambda request: (-request.priority, request.id))
    assert list(by_arrival) == requests


def test_first_come_first_served_looks_at_no_priority() -> None:
    script = Script(chunked(max_num_seqs=1))
    script.arrive(0, 4)
    script.arrive(1, 4)
    script.arrive(2, 4, priority=9)
    assert script.queue() == [1, 2]


def test_the_urgent_are_admitted_first() -> None:
    script = Script(chunked(max_num_seqs=1), order="priority")
    for request, priority in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 0)):
        script.arrive(request, 4, priority)
    assert script.queue() == [4, 2, 3, 1, 5]


def test_before_the_last_as_llumnix_artefact_has_it() -> None:
    """Of four urgent ones the first to wait becomes the last; a normal one goes behind, then is passed."""
    script = Script(chunked(max_num_seqs=1), order="before_last")
    for request, priority in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 1), (5, 0), (6, 2)):
        script.arrive(request, 4, priority)
    assert script.queue() == [2, 3, 4, 1, 6, 5]


def test_before_the_last_who_is_preempted_is_first_and_the_newest_goes_whatever_its_priority() -> None:
    script = Script(PrefillFirst(8, 64, True), blocks=5, order="before_last")
    for request, priority in ((0, 1), (1, 0), (2, 0), (3, 2), (4, 0)):
        script.arrive(request, 4, priority)
    victims = list[int]()
    while not victims:
        actions = script.ran(0) if script.engine.state.name == "STOPPING" else script.ran(1)
        victims = [action.request for action in actions if isinstance(action, Preempt)]
    assert victims == [4, 2, 3]  # 3 came after 2 and was admitted before it
    script.arrive(5, 4, priority=1)
    assert script.queue() == [3, 2, 5, 4]


def test_before_the_last_who_passes_the_only_one_that_waits_stops_the_run() -> None:
    script = Script(PrefillFirst(4, 64), blocks=8, order="before_last")
    script.arrive(0, 20)
    script.ran(1, goes_on=True)
    script.arrive(1, 16)
    script.ran(0)
    assert script.arrive(2, 8, priority=1) == [Interrupt(ID, "arrival")]
    assert script.queue() == [2, 1]


def test_who_passes_a_head_that_was_declined_stops_the_run() -> None:
    """There is no room for request 1 until 0 ends, but for 3. And for 2, which waits behind 1."""
    script = Script(PrefillFirst(4, 64), blocks=8, order="priority")
    assert script.arrive(0, 20) == [run(((0, 0, 20),), False, 13, None, "prefill")]
    script.ran(1, goes_on=True)
    assert script.arrive(1, 16) == [Interrupt(ID, "arrival")]
    (again,) = script.ran(0)
    assert isinstance(again, Run) and again.max_steps > 1 and not again.chunks
    assert script.arrive(2, 4) == []
    assert script.arrive(3, 4, priority=1) == [Interrupt(ID, "arrival")]
    (begun,) = script.ran(1)
    assert isinstance(begun, Run) and begun.chunks == ((3, 0, 4),)
    assert script.queue() == [1, 2]


def test_an_equal_one_does_not_pass_and_stops_nothing() -> None:
    script = Script(PrefillFirst(4, 64), blocks=8, order="priority")
    script.arrive(0, 20, priority=1)
    script.ran(1, goes_on=True)
    script.arrive(1, 16, priority=1)
    script.ran(0)
    assert script.arrive(3, 4, priority=1) == []


@pytest.mark.parametrize("batcher", [chunked(8, 64), PrefillFirst(8, 64), PrefillFirst(8, 64, True)])
def test_the_least_urgent_are_preempted_first_the_newest_of_them_before(batcher: Batcher) -> None:
    """Five prompts of a block each fill a memory of five: in the next step each wants one more."""
    script = Script(batcher, blocks=5, order="priority")
    for request, priority in ((0, 1), (1, 0), (2, 0), (3, 2), (4, 0)):
        script.arrive(request, 4, priority)
    victims = list[int]()
    while not victims:
        actions = script.ran(0) if script.engine.state.name == "STOPPING" else script.ran(1)
        victims = [action.request for action in actions if isinstance(action, Preempt)]
    assert victims == [4, 2, 1]
    assert script.queue() == [1, 2, 4]


def test_a_prompt_under_way_is_preempted_after_the_less_urgent() -> None:
    """Request 1 has computed a part of its prompt and lacks blocks for the rest; 0 decodes, and goes."""
    script = Script(ChunkedPrefill(4, 8), blocks=6, order="priority")
    script.arrive(0, 8)
    script.ran(1)
    script.arrive(1, 20, priority=1)
    assert script.engine.state.name == "STOPPING"
    script.ran(0)
    actions = script.ran(1)
    assert [action.request for action in actions if isinstance(action, Preempt)] == [0]
    assert list(script.engine.prefilling) == [1]


class InOrder:
    """A batcher whose answers are looked at: who begins, and who is left to wait."""

    def __init__(self, inner: Batcher) -> None:
        self.inner = inner
        self.seen = 0

    def choose(self, view: ReplicaView) -> Batch | None:
        batch = self.inner.choose(view)
        if batch is not None and batch.admit:
            waiting = list(view.waiting)
            admitted, left = waiting[: batch.admit], waiting[batch.admit :]
            assert [one.id for one in admitted] == [chunk[0] for chunk in batch.chunks[-batch.admit :]]
            assert not left or min(map(urgency, admitted)) >= max(map(urgency, left))
            fresh = [one for one in waiting if not one.was_preempted]
            assert [one.id for one in fresh] == sorted(
                [one.id for one in fresh], key=lambda id: (-priority_of(fresh, id), id)
            )
            self.seen += bool(left)
        return batch


def urgency(progress) -> int:  # type: ignore[no-untyped-def]
    return progress.priority  # type: ignore[no-any-return]


def priority_of(queue, request: int) -> int:  # type: ignore[no-untyped-def]
    return next(one.priority for one in queue if one.id == request)


@given(case=cases())
@settings(max_examples=50)
def test_nobody_begins_before_a_more_urgent_one_that_waits(case: Case) -> None:
    """And among equals who came first begins first."""
    simulate(case, wrap=InOrder)
