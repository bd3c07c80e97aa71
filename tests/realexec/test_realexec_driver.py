"""The wall-clock driver with real processes: two workers, a death, and a run under the real controller."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.driver.driver import execute
from realexec.driver.processes import WorkerPool
from realexec.driver.verify import check_tokens
from realexec.wire.messages import Hold
from realexec.world.arrivals import prompt_ids
from realexec.world.models import Models
from realexec.world.report import RunReport
from serving.vocabulary.actions import (
    Action,
    Assign,
    Fail,
    Interrupt,
    Preempt,
    Reject,
    Run,
)
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived, Event, Lost, Ran
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from tests.worlds.processes import REAL, patience_s, start_up_s
from tests.worlds.real_runs import TINY
from tests.worlds.real_workers import own_workers

pytestmark = pytest.mark.real

SEED = 5
BATCH_SIZE = 4
CHUNK = 16
MS = 1_000_000


def request(number: int, arrival_ms: int, prompt_tokens: int, max_new_tokens: int = 64) -> Request:
    return Request(number, arrival_ms * MS, prompt_tokens, max_new_tokens, "tiny_llama")


@dataclass
class FakeReplica:
    waiting: deque[Request] = field(default_factory=deque)
    residents: set[int] = field(default_factory=set)
    start: int = 0
    running: Run | None = None
    lost: bool = False


class FakeController:
    """Round robin; one prompt at a time in small chunks, mixed with decoding; rejects request 99."""

    steps = 64  # of a decode run
    step_counts = None

    def __init__(self, replicas: int) -> None:
        self.replicas = [FakeReplica() for _ in range(replicas)]
        self.times_ns: list[int] = []

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        self.times_ns.append(now_ns)
        if isinstance(event, Arrived):
            return self._arrived(event.request)
        if isinstance(event, Ran):
            return self._ran(event)
        replica = self.replicas[event.replica]
        replica.lost = True
        left = sorted([*replica.residents, *(one.id for one in replica.waiting)])
        return [Fail(number, event.cause) for number in left]

    def _arrived(self, arrival: Request) -> list[Action]:
        index = arrival.id % len(self.replicas)
        replica = self.replicas[index]
        if arrival.id == 99 or replica.lost:
            return [Reject(arrival.id, "not today")]
        replica.waiting.append(arrival)
        actions: list[Action] = [Assign(arrival.id, index, "its turn")]
        if replica.running is None:
            actions += self._next(index)
        elif not replica.running.chunks:
            actions.append(Interrupt(index, "arrival"))
        return actions

    def _ran(self, event: Ran) -> list[Action]:
        replica = self.replicas[event.replica]
        run = replica.running
        if run is None or replica.lost:
            return []
        for _, _, tokens in run.chunks:
            replica.start += tokens
            if replica.start == replica.waiting[0].prompt_tokens:
                replica.residents.add(replica.waiting.popleft().id)
                replica.start = 0
        replica.residents -= set(event.finished)
        return self._next(event.replica)

    def _next(self, index: int) -> list[Action]:
        replica = self.replicas[index]
        chunks = ()
        if replica.waiting and len(replica.residents) < BATCH_SIZE:
            head = replica.waiting[0]
            chunks = ((head.id, replica.start, min(CHUNK, head.prompt_tokens - replica.start)),)
        replica.running = None
        if chunks or replica.residents:
            replica.running = Run(index, 0, chunks, True, 1 if chunks else self.steps, True, "test")
            return [replica.running]
        return []


@dataclass
class Records:
    ended: dict[int, tuple] = field(default_factory=dict)
    gap_counts: list[tuple[int, int]] = field(default_factory=list)
    busy_ns: dict[int, int] = field(default_factory=dict)

    def finished(self, request, output_tokens, first_token_ns, finish_ns, replica, preemptions) -> None:
        assert request.id not in self.ended
        self.ended[request.id] = ("finished", output_tokens, first_token_ns, finish_ns, replica, preemptions)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        assert request.id not in self.ended
        self.ended[request.id] = ("refused", now_ns, reason)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        assert request.id not in self.ended
        self.ended[request.id] = ("failed", now_ns, reason)

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        assert (slope_fixed, steps) == (0, 1)
        self.gap_counts.append((first_fixed >> FRACTION_BITS, sequences))

    def busy(self, replica: int, busy_ns: int) -> None:
        assert replica not in self.busy_ns
        self.busy_ns[replica] = busy_ns


class Lines:
    def __init__(self) -> None:
        self.rows: list[tuple[int, Event, list[Action]]] = []

    def write(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        self.rows.append((now_ns, event, list(actions)))


def run(
    controller: object,
    requests: list[tuple[Request, int]],
    on_progress: Callable[[int, int], None] | None = None,
    **options: float,
) -> tuple[RunReport, Records, Lines]:
    records, journal = Records(), Lines()
    options = {"start_timeout_s": patience_s(REAL), **options}
    report = execute(
        controller,
        requests,
        workers=2,
        model=TINY,
        seed=SEED,
        batch_size=BATCH_SIZE,
        recorder=records,
        journal=journal,
        on_progress=on_progress,
        **options,
    )
    assert not own_workers()
    return report, records, journal


def test_two_workers_serve_everything_exactly() -> None:
    sizes = [(30, 9), (1, 12), (47, 1), (16, 20), (25, 7), (60, 15), (18, 5), (9, 30)]
    requests = [(request(i, 3 * i, prompt), output) for i, (prompt, output) in enumerate(sizes)]
    requests += [(request(98, 40, 20, max_new_tokens=6), 10), (request(99, 45, 20), 10)]
    controller, progress = FakeController(2), []
    report, records, journal = run(
        controller, requests, lambda ended, arrived: progress.append((ended, arrived))
    )

    assert (report.arrived, report.finished, report.refused, report.failed, report.lost) == (10, 9, 1, 0, ())
    assert records.ended[99][0] == "refused"
    assert records.ended[98][1] == 6, "the client's cap cuts the true length"
    assert [records.ended[i][1] for i in range(8)] == [output for _, output in sizes]
    assert {records.ended[i][4] for i in range(8)} == {0, 1}
    assert progress[-1] == (10, 10)
    assert set(records.busy_ns) == {0, 1} and 0 < min(records.busy_ns.values()) < report.wall_s * 1e9
    check_times(report, records, journal, {one.id: one for one, _ in requests})
    assert controller.times_ns == [now_ns for now_ns, _, _ in journal.rows] == sorted(controller.times_ns)
    assert len(report.decide_ns) == len(journal.rows) and len(report.lateness_ns) == 10
    assert report.decide_ns_mean > 0 and report.decide_ns_p99 > 0 and min(report.lateness_ns) >= 0

    check = check_tokens(TINY, SEED, BATCH_SIZE, report.generations.values())
    assert (check.tokens_checked, check.tokens_different, check.tokens_recomputed) == (105, 0, 0), check
    assert report.generations[3].prompt == prompt_ids(SEED, 3, 16, TINY["vocab_size"])


def check_times(report: RunReport, records: Records, journal: Lines, requests: dict[int, Request]) -> None:
    """Gaps add up to the time from first to last token, and every token but the first has one."""
    finished = {number: row for number, row in records.ended.items() if row[0] == "finished"}
    spans_ns = sum(finish_ns - first_ns for _, _, first_ns, finish_ns, _, _ in finished.values())
    assert sum(gap_ns * sequences for gap_ns, sequences in records.gap_counts) == spans_ns
    assert sum(sequences for _, sequences in records.gap_counts) == sum(
        row[1] - 1 for row in finished.values()
    )
    reported_ns = {
        number: now for now, event, _ in journal.rows if isinstance(event, Ran) for number in event.finished
    }
    for number, (_, _, first_ns, finish_ns, _, _) in finished.items():
        assert (
            requests[number].arrival_ns < first_ns <= finish_ns <= reported_ns[number] < report.wall_s * 1e9
        )


def longest_silence_s() -> float:
    """A worker that computes is heard of every second, and sooner than this on a machine as busy as now."""
    return max(4.0, start_up_s(REAL))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
def test_a_worker_that_is_gone_is_lost_and_the_others_finish(how: signal.Signals) -> None:
    silence_s = longest_silence_s()
    requests = [(request(i, i, 20, max_new_tokens=4000), 4000 if i % 2 else 40) for i in range(6)]
    requests += [(request(i, int(400 * silence_s) + i, 10), 4) for i in (6, 7)]
    killed_ns: list[int] = []

    class Killer(FakeController):
        """Ends or stops worker 1 while it decodes its long requests."""

        def handle(self, now_ns: int, event: Event) -> list[Action]:
            if not killed_ns and len(self.replicas[1].residents) == 3:
                os.kill(own_workers()[1], how)
                killed_ns.append(time.monotonic_ns())
            return super().handle(now_ns, event)

    report, records, journal = run(Killer(2), requests, report_timeout_s=10 * silence_s)
    assert killed_ns
    cause = "the worker process was ended by SIGKILL"
    if how is signal.SIGSTOP:
        cause = "nothing was heard of the worker process for 4 s: it is stopped (SIGSTOP or a debugger)"
    assert report.lost == ((1, cause),)
    assert [event for _, event, _ in journal.rows if isinstance(event, Lost)] == [Lost(1, report.lost[0][1])]
    assert {i: records.ended[i][0] for i in range(8)} == {
        **dict.fromkeys((0, 2, 4, 6), "finished"),
        **dict.fromkeys((1, 3, 5), "failed"),
        7: records.ended[7][0],  # it may arrive before the silence is too long
    }
    assert records.ended[7][0] in (("refused",) if how is signal.SIGKILL else ("refused", "failed"))
    check = check_tokens(TINY, SEED, BATCH_SIZE, report.generations.values())
    assert (check.tokens_checked, check.tokens_different) == (124, 0)


def test_recompute_under_the_real_controller_replays_and_is_counted_apart() -> None:
    """Too little KV for everyone: requests are preempted and recomputed; the journal replays."""
    from policies.admission import AdmitAll
    from policies.batching import ChunkedPrefill
    from policies.dispatch import LeastOutstanding
    from serving.composition import compose
    from serving.controller import Controller
    from serving.vocabulary.layers import LayerRange
    from serving.vocabulary.replica import Replica

    def controller() -> Controller:
        replicas = [
            Replica(id=i, model="tiny_llama", layers=LayerRange(0, 3), gpus=(i,), kv_blocks=9)
            for i in range(2)
        ]
        return compose(
            replicas, LeastOutstanding(), lambda _: ChunkedPrefill(BATCH_SIZE, 24), admission=AdmitAll()
        )

    requests = [(request(i, 2 * i, 20 + 7 * i), 30 + i) for i in range(8)]
    report, records, journal = run(controller(), requests)
    assert report.finished == 8 and report.preemptions > 0
    assert sum(row[5] for row in records.ended.values()) == report.preemptions
    preempted = {
        action.request for _, _, actions in journal.rows for action in actions if isinstance(action, Preempt)
    }
    check = check_tokens(TINY, SEED, BATCH_SIZE, report.generations.values())
    assert check.tokens_different == 0, check.first_difference
    assert check.tokens_checked + check.tokens_recomputed == sum(30 + i for i in range(8))
    recomputed = {i for i, one in report.generations.items() if one.exact_tokens < len(one.tokens)}
    assert recomputed and recomputed <= preempted

    again = controller()
    assert [again.handle(now_ns, event) for now_ns, event, _ in journal.rows] == [
        row[2] for row in journal.rows
    ]


def test_what_a_user_can_correct_is_said_in_a_sentence() -> None:
    def attempt(requests: list[tuple[Request, int]], workers: int = 1, **keys: object) -> None:
        execute(
            FakeController(1),
            requests,
            workers=workers,
            model={**TINY, **keys},
            seed=SEED,
            batch_size=BATCH_SIZE,
            recorder=Records(),
        )

    with pytest.raises(UserError, match="at least 1"):
        attempt([], workers=0)
    with pytest.raises(UserError, match="Request 4 must have at least one"):
        attempt([(request(4, 0, 5), 0)])
    with pytest.raises(UserError, match=r"Worker 0 did not start \(UserError: model.hidden_sise"):
        attempt([], hidden_sise=64)
    assert not own_workers()


class Idle:
    """A controller that assigns and then forgets to run."""

    step_counts = None

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        if isinstance(event, Arrived):
            return [Assign(event.request.id, 0, "and nothing else")]
        raise AssertionError("nothing ran")


def test_a_controller_that_leaves_work_lying_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="left 1 requests unserved"):
        execute(
            Idle(),
            [(request(0, 0, 5), 3)],
            workers=1,
            model=TINY,
            seed=SEED,
            batch_size=BATCH_SIZE,
            recorder=Records(),
        )
    assert not own_workers()


class Asks:
    """Answers the first arrival with one wish."""

    step_counts = None

    def __init__(self, wish: Action) -> None:
        self.wish = wish

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        return [self.wish]


class NoWorkers(WorkerPool):
    """Ready at once, and never told anything."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(0, TINY, SEED, BATCH_SIZE)


@pytest.mark.parametrize("how", [{"inputs": ((1, 64),)}, {"micro_batch": 0}], ids=str)
def test_what_workers_cannot_do_ends_the_run_by_name(how: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realexec.driver.driver.WorkerPool", NoWorkers)
    monkeypatch.setattr("realexec.driver.driver.open_slots", lambda *_: (Models((), (3,)), (None,)))
    wish = Run(0, 0, ((0, 0, 4),), True, 1, True, "prefill", **how)
    with pytest.raises(
        RuntimeError,
        match=r"cannot run passes without KV or micro-batches, and the controller requests Run\(",
    ):
        run(Asks(wish), [(request(0, 0, 4), 2)])


def test_a_stopped_worker_holds_nobody_up() -> None:
    """More than a pipe holds is handed over at once; the worker's end still ends everything."""
    with WorkerPool(1, TINY, SEED, BATCH_SIZE) as pool:
        pool.wait_ready(patience_s(REAL))
        (worker,) = pool.workers
        os.kill(worker.process.pid, signal.SIGSTOP)
        sent = threading.Thread(
            target=lambda: [worker.send(Hold(i, tuple(range(2000)), (), 5)) for i in range(500)], daemon=True
        )
        sent.start()
        sent.join(patience_s(REAL))
        assert not sent.is_alive()
    assert not own_workers()


def test_a_long_run_without_a_finish_is_not_silence() -> None:
    """One run of steps, told to be so long that it outlasts the patience."""
    silence_s = longest_silence_s()

    class Patient(FakeController):
        steps = 1 << 20

    tokens = 4000
    while True:
        report, records, _ = run(Patient(2), [(request(0, 0, 8, tokens), tokens)], report_timeout_s=silence_s)
        assert report.lost == () and report.finished == 1
        took_s = records.ended[0][3] / 1e9
        if took_s > 1.2 * silence_s:
            return
        tokens = int(tokens * max(2.0, 1.5 * silence_s / took_s))
