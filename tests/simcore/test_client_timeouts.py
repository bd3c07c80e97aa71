"""Clients that give up: laws over drawn cases, exact = coalesced, retries, front ends, closed loops."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.record.journal import parse_event
from serving.record.journal_lines import JournalLines
from serving.record.replay import replay
from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.events import Arrived, Disconnected
from serving.vocabulary.request import Request
from simcore.client_timeouts import ClientPlan, ClientTimeouts
from simcore.simulation import Simulation
from tests.worlds.journals import complete_journal
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, controller_of, requests_of, simulate

NS = 1 << 24
FOR_EVER = 10**18


@dataclass
class Waited(Collected):
    """Also keeps who gave up, and when; ``in_vain_ns``: the end of the last work for one who had left."""

    given_up: dict[int, int] = field(default_factory=dict)
    in_vain_ns: int = 0

    def timed_out(self, request: Request, now_ns: int, reason: str) -> None:
        assert request.id not in self.given_up and reason
        self.given_up[request.id] = now_ns

    def ended_in_vain(self, now_ns: int) -> None:
        self.in_vain_ns = now_ns


class SlowDoor:
    """A front end through which every request takes equally long, and every token too."""

    def __init__(self, in_ns: int, out_ns: int) -> None:
        self.in_ns, self.out_ns = in_ns, out_ns

    def enter(self, request: Request, sent_ns: int) -> int:
        return sent_ns + self.in_ns

    def undo(self) -> None:
        raise AssertionError("requests come in as they are sent")

    def way_out_ns(self, decoding: int) -> int:
        return self.out_ns


@dataclass
class Run:
    """What became of a run."""

    ends: Waited
    checked: Checked
    clients: ClientTimeouts

    @property
    def told(self) -> list[object]:
        return [parse_event(event) for _, _, event, _, _ in self.lines().entries()]

    def lines(self) -> JournalLines:
        return JournalLines(self.journal(), "journal")

    def journal(self) -> list[str]:
        header: dict[str, object] = {"source": "test", "carries_out": []}
        actions = sum([line.count('["') for line in self.checked.lines])
        return [f"{one}\n" for one in complete_journal(header, self.checked.lines, actions)]


def play(case: Case, plan: ClientPlan, *, coalesce: bool = True, requests: Requests | None = None) -> Run:
    checked, ends = Checked(controller_of(case, coalesce)), Waited()
    world = Simulation(
        checked,
        requests_of(case) if requests is None else requests,
        [case.rows] * case.replicas,  # type: ignore[list-item]
        ends,
        clients=(plan, ends),
    )
    world.run()
    assert world.clients is not None
    return Run(ends, checked, world.clients)


def plan_of(
    case: Case, timeout_ns: int, retries: int = 0, wait_ns: int = 0, door: SlowDoor | None = None
) -> ClientPlan:
    return ClientPlan(
        timeout_ns=timeout_ns, retries=retries, wait_ns=wait_ns, requests=len(case.requests), door=door
    )


@st.composite
def impatient(draw: st.DrawFn) -> tuple[Case, ClientPlan]:
    """A case, and clients that wait for some of what it takes without them."""
    case = draw(cases())
    spans = [done[3] - case.requests[id][0] for id, done in simulate(case)[0].done.items()]
    longest = max([1, *spans])
    timeout_ns = draw(st.integers(1, longest + 1))
    return case, plan_of(case, timeout_ns, draw(st.sampled_from((0, 0, 1, 2))), draw(st.integers(0, longest)))


@given(case=cases())
@settings(max_examples=60)
def test_clients_that_would_wait_for_ever_change_nothing(case: Case) -> None:
    patient = play(case, plan_of(case, FOR_EVER, 2))
    without, _, checked = simulate(case)
    found = (patient.ends.done, patient.ends.refusals, patient.ends.busy_ns)
    assert found == (without.done, without.refusals, without.busy_ns)
    assert patient.checked.lines == checked.lines
    assert not patient.ends.given_up and not patient.clients.counts.time_outs


@given(drawn=impatient())
@settings(max_examples=100)
def test_coalesced_equals_step_by_step(drawn: tuple[Case, ClientPlan]) -> None:
    case, plan = drawn
    one, other = play(case, plan), play(case, plan, coalesce=False)
    assert one.ends.done == other.ends.done
    assert (one.ends.given_up, one.ends.refusals) == (other.ends.given_up, other.ends.refusals)
    assert sorted(one.ends.all_gaps) == sorted(other.ends.all_gaps)
    assert (one.ends.busy_ns, one.ends.in_vain_ns) == (other.ends.busy_ns, other.ends.in_vain_ns)
    assert one.clients.counts == other.clients.counts


@given(drawn=impatient())
@settings(max_examples=60)
def test_every_request_and_every_attempt_ends_once(drawn: tuple[Case, ClientPlan]) -> None:
    case, plan = drawn
    run = play(case, plan)
    ends, counts, controller = run.ends, run.clients.counts, run.checked.controller
    ways = [*ends.done, *ends.refusals, *ends.given_up]
    assert sorted(ways) == list(range(len(case.requests)))
    assert counts.time_outs == counts.retries + counts.given_up == counts.retries + len(ends.given_up)
    assert controller.arrived == len(case.requests) + counts.retries
    assert controller.arrived == controller.finished + controller.rejected + controller.aborted
    assert not controller.requests and not controller.aborts.leaving
    for request, (_, _, _, finish_ns, _) in ends.done.items():
        attempt = run.clients.attempts.get(request, 0)
        sent_ns = case.requests[request][0] + attempt * (plan.timeout_ns + plan.wait_ns)
        assert finish_ns - sent_ns < plan.timeout_ns, "an answer in time"
    for request, left_ns in ends.given_up.items():
        attempts = plan.retries + 1
        sent_ns = case.requests[request][0]
        assert left_ns == sent_ns + attempts * plan.timeout_ns + plan.retries * plan.wait_ns


@given(drawn=impatient())
@settings(max_examples=30)
def test_a_fresh_controller_gives_the_same_answers(drawn: tuple[Case, ClientPlan]) -> None:
    case, plan = drawn
    run = play(case, plan)
    report = replay(run.journal(), controller_of(case))
    assert report.first_difference is None or report.first_difference.startswith("footer")


@given(drawn=impatient())
@settings(max_examples=30)
def test_the_same_clients_give_up_again(drawn: tuple[Case, ClientPlan]) -> None:
    assert play(*drawn).checked.lines == play(*drawn).checked.lines


# By hand: steps of 10 ns, one request at a time.


def slow_case(*requests: tuple[int, int, int, int], seats: int = 1) -> Case:
    return Case(
        batcher="chunked",
        replicas=1,
        block_tokens=4,
        total_blocks=64,
        watermark_blocks=0,
        max_num_seqs=seats,
        max_num_batched_tokens=8,
        dispatch="round_robin",
        requests=requests,
        rows=ToyRows(10 * NS, 0, 0, 10 * NS, 0),
    )


def told_of(run: Run, kind: type) -> list[object]:
    return [one for one in run.told if isinstance(one, kind)]


def test_who_gives_up_makes_room_at_the_next_boundary() -> None:
    """The first would take 100 ns; its client leaves after 51, in the sixth step, and the second begins."""
    case = slow_case((0, 4, 10, 20), (50, 4, 2, 20))
    run = play(case, plan_of(case, 51))
    assert run.ends.given_up == {0: 51} and run.ends.in_vain_ns == 60
    assert run.ends.done == {1: (0, 2, 70, 80, 0)}
    assert run.clients.counts.wasted_tokens == 4 + 6


def test_a_retry_is_another_request_of_the_same_words() -> None:
    run = play(case := slow_case((0, 4, 10, 20)), plan_of(case, 35, retries=2, wait_ns=5))
    arrived = [one.request for one in told_of(run, Arrived) if isinstance(one, Arrived)]
    assert [(one.id, one.arrival_ns, one.prompt_tokens) for one in arrived] == [
        (0, 0, 4),
        (1, 40, 4),
        (2, 80, 4),
    ]
    assert told_of(run, Disconnected) == [Disconnected(0), Disconnected(1), Disconnected(2)]
    assert run.ends.given_up == {0: 115} and not run.ends.done
    assert (run.clients.counts.time_outs, run.clients.counts.retries) == (3, 2)


def test_a_retry_may_be_served_where_the_first_was_not() -> None:
    """The first takes 60 ns; the second begins behind it, too late, and sent again it begins 10 ns later."""
    case = slow_case((0, 4, 6, 20), (1, 4, 3, 20))
    run = play(case, plan_of(case, 61, retries=1))
    assert run.ends.done == {0: (0, 6, 10, 60, 0), 1: (0, 3, 80, 100, 0)}
    assert run.clients.attempts == {1: 1} and run.clients.first_sent_ns == {1: 1}


@pytest.mark.parametrize("retries", [0, 2])
def test_with_less_time_than_the_way_in_everybody_gives_up(retries: int) -> None:
    case = slow_case(*[(10 * id, 4, 3, 9) for id in range(5)])
    run = play(case, plan_of(case, 100, retries, door=SlowDoor(100, 0)))
    assert sorted(run.ends.given_up) == [0, 1, 2, 3, 4] and not run.checked.lines
    counts = run.clients.counts
    assert counts.on_the_way == counts.time_outs == 5 * (retries + 1) and counts.wasted_tokens == 0


def test_an_answer_that_is_too_long_on_its_way_is_in_vain() -> None:
    """Two tokens take 20 ns, in 5 and out 30: at 55 the client has gone, or not, to the nanosecond."""
    case = slow_case((0, 4, 2, 9))
    late = play(case, plan_of(case, 55, door=SlowDoor(5, 30)))
    assert late.ends.given_up == {0: 55} and late.clients.counts.too_late == 1
    assert late.clients.counts.wasted_tokens == 6 and not told_of(late, Disconnected)
    in_time = play(case, plan_of(case, 56, door=SlowDoor(5, 30)))
    assert in_time.ends.done.keys() == {0} and not in_time.ends.given_up


def closed(case: Case, clients: int, think_ns: int = 0) -> ClosedLoop:
    return ClosedLoop(requests_of(case), [0] * clients, think_ns)


def test_a_client_of_a_loop_goes_on_when_it_has_given_up() -> None:
    case = slow_case((0, 4, 10, 20), (0, 4, 1, 20), (0, 4, 1, 20))
    run = play(case, plan_of(case, 35), requests=closed(case, 1, think_ns=7))
    arrived = [one.request.arrival_ns for one in told_of(run, Arrived) if isinstance(one, Arrived)]
    assert arrived[:2] == [0, 42] and len(arrived) == 3
    assert run.ends.given_up == {0: 35} and sorted(run.ends.done) == [1, 2]


def test_a_client_of_a_loop_first_sends_again() -> None:
    case = slow_case((0, 4, 10, 20), (0, 4, 1, 20))
    run = play(case, plan_of(case, 35, retries=1), requests=closed(case, 1))
    arrived = [(one.request.id, one.request.arrival_ns) for one in told_of(run, Arrived)]  # type: ignore[attr-defined]
    assert arrived == [(0, 0), (2, 35), (1, 70)]


@given(case=cases(), clients=st.integers(1, 4), think_ns=st.integers(0, 50))
@settings(max_examples=40)
def test_a_loop_of_patient_clients_is_as_without(case: Case, clients: int, think_ns: int) -> None:
    def plain() -> tuple[Collected, list[str]]:
        checked, ends = Checked(controller_of(case)), Collected()
        Simulation(checked, closed(case, clients, think_ns), [case.rows] * case.replicas, ends).run()  # type: ignore[list-item]
        return ends, checked.lines

    ends, lines = plain()
    run = play(case, plan_of(case, FOR_EVER), requests=closed(case, clients, think_ns))
    assert (run.ends.done, run.ends.refusals) == (ends.done, ends.refusals)
    assert run.checked.lines == lines


def test_a_prompt_that_was_computed_before_is_found_again() -> None:
    case = replace(slow_case((0, 8, 9, 20)), prefix_caching=True)
    found = play(case, replace(plan_of(case, 35, retries=1), finds_prompts=True))
    (_, again) = [one.request for one in told_of(found, Arrived)]  # type: ignore[attr-defined]
    assert again.shared_prefix == ((0, 8),)
