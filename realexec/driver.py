"""The wall-clock driver: one inbox, one thread that owns the controller, one worker process per replica.

Events are handed to the controller in the order in which the owning thread takes them; the time of an event
is the moment it is taken, in ns since all workers were ready. Nothing here decides anything.
"""

import queue
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from realexec.messages import Alive, Died, DropKV, Forget, FromWorker, RunSteps, StepsDone, StopSteps
from realexec.processes import WorkerPool
from realexec.prompts import prompt_ids
from realexec.report import RunReport
from realexec.tracking import Tracker
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Preempt, Reject, Run
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived, Event, Lost, Ran
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

# A worker is heard of at every finish, at the end of a run and about once a second in between; a single step
# of a small model is far shorter than this.
REPORT_TIMEOUT_S = 300.0
# Each worker has one whole model for the whole run.
CARRIES_OUT = frozenset((Assign, Reject, Run, Interrupt, Preempt, Fail))


class Controller(Protocol):
    """What the driver needs of `serving.controller.Controller`."""

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """Take one fact, return wishes."""


class Journal(Protocol):
    """Where the run is written so that it can be replayed."""

    def write(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        """Called once per handled event, in order."""


def execute(
    controller: Controller,
    requests: Iterable[tuple[Request, int]],
    workers: int,
    model: Mapping[str, Any],
    seed: int,
    batch_size: int,
    recorder: Recorder,
    journal: Journal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    start_timeout_s: float = 120,
    report_timeout_s: float = REPORT_TIMEOUT_S,
) -> RunReport:
    """Run ``requests`` on ``workers`` processes (replica r is worker r) under ``controller``.

    ``requests`` yields (request, true output tokens) by ascending ``arrival_ns``; it is read as time goes on.
    ``model`` holds the model's configuration keys (`realexec.models.build_model`), ``batch_size`` the rows of
    every decode batch: the most requests that may decode at once on a replica. ``on_progress`` gets (ended,
    arrived) counts after every event. A worker silent for ``report_timeout_s`` with a run in flight is
    ended and lost. Raises UserError for what a user can correct, RuntimeError when the controller leaves
    requests unserved or asks for what workers cannot do (loads, places, hand-overs); all processes are ended
    before this returns or raises.
    """
    if workers < 1 or batch_size < 1:
        raise UserError("workers and batch_size must both be at least 1.")
    if "vocab_size" not in model:
        raise UserError("model.vocab_size is missing; write the number of token ids prompts may use.")
    arrivals = _Arrivals(requests, seed, model["vocab_size"])
    launched_ns = time.monotonic_ns()
    with WorkerPool(workers, model, seed, batch_size) as pool:
        pool.wait_ready(start_timeout_s)
        execution = _Execution(controller, pool, Tracker(recorder, workers), journal, report_timeout_s)
        start_s = (execution.start_ns - launched_ns) / NS_PER_S
        return execution.run(arrivals, on_progress, start_s)


class _Arrivals:
    """The next arrival, read one ahead of time."""

    def __init__(self, requests: Iterable[tuple[Request, int]], seed: int, vocab_size: int) -> None:
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._seed = seed
        self._vocab_size = vocab_size
        self.request: Request | None = None
        self.due_ns = 0
        self.advance()

    def advance(self) -> None:
        """Read the next request; ``request`` is None at the end."""
        self.request, output_tokens = next(self._requests, (None, 0))
        if self.request is None:
            return
        if self.request.arrival_ns < self.due_ns:
            raise UserError(f"Request {self.request.id} arrives before the one ahead of it; sort by arrival.")
        if min(output_tokens, self.request.prompt_tokens) < 1:
            raise UserError(f"Request {self.request.id} must have at least one prompt and one output token.")
        self.due_ns = self.request.arrival_ns
        self.output_tokens = min(output_tokens, self.request.max_new_tokens)
        # Made ahead of time, so that its cost does not delay the arrival.
        self.prompt = prompt_ids(self._seed, self.request.id, self.request.prompt_tokens, self._vocab_size)


class _Execution:
    """The state of one run. Only the thread that calls `run` touches it."""

    def __init__(
        self,
        controller: Controller,
        pool: WorkerPool,
        tracker: Tracker,
        journal: Journal | None,
        report_timeout_s: float,
    ) -> None:
        self._controller = controller
        self._pool = pool
        self._tracker = tracker
        self._journal = journal
        self._report_timeout_ns = int(report_timeout_s * NS_PER_S)
        # When each replica was last heard of with a run in flight; None when it has none.
        self._silent_since_ns: list[int | None] = [None] * len(pool.workers)
        self._lost: list[tuple[int, str]] = []
        self._decide_ns = array("q")
        self._lateness_ns = array("q")
        self.start_ns = time.monotonic_ns()

    def run(
        self, arrivals: _Arrivals, on_progress: Callable[[int, int], None] | None, start_s: float
    ) -> RunReport:
        """Until the last request has ended."""
        while arrivals.request is not None or self._tracker.unfinished:
            event = self._next_event(arrivals)
            if event is not None:
                self._handle(event)
                if on_progress is not None:
                    on_progress(self._tracker.ended, self._tracker.arrived)
        self._tracker.close()
        return RunReport(
            wall_s=self._now_ns() / NS_PER_S,
            start_s=start_s,
            arrived=self._tracker.arrived,
            refused=self._tracker.refused,
            failed=self._tracker.failed,
            preemptions=self._tracker.preemptions,
            lost=tuple(self._lost),
            generations=self._tracker.generations,
            decide_ns=self._decide_ns,
            lateness_ns=self._lateness_ns,
        )

    def _next_event(self, arrivals: _Arrivals) -> Event | None:
        """The next fact; None when the wait ended without one.

        Facts go before due arrivals. That starves no arrival: a worker reports once per run it was given, and
        once per finish.
        """
        try:
            if arrivals.request is None:
                self._refuse_stall()
                return self._fact(*self._pool.inbox.get(timeout=self._patience_s()))
            wait_s = min((arrivals.due_ns - self._now_ns()) / NS_PER_S, self._patience_s())
            if wait_s > 0:
                return self._fact(*self._pool.inbox.get(timeout=wait_s))
            return self._fact(*self._pool.inbox.get_nowait())
        except queue.Empty:
            self._end_silent_workers()
            due = arrivals.request is not None and arrivals.due_ns <= self._now_ns()
            return self._arrival(arrivals) if due else None

    def _patience_s(self) -> float:
        """How long until the first run in flight has been silent for too long."""
        since_ns = min(
            (since for since in self._silent_since_ns if since is not None), default=self._now_ns()
        )
        return max(since_ns + self._report_timeout_ns - self._now_ns(), 0) / NS_PER_S

    def _end_silent_workers(self) -> None:
        """A process that hangs is a process that is gone: its end reaches the inbox like any other's."""
        for replica, since_ns in enumerate(self._silent_since_ns):
            if since_ns is not None and self._now_ns() - since_ns >= self._report_timeout_ns:
                self._silent_since_ns[replica] = self._now_ns()
                self._pool.workers[replica].process.kill()

    def _arrival(self, arrivals: _Arrivals) -> Event:
        request = arrivals.request
        assert request is not None
        self._lateness_ns.append(self._now_ns() - request.arrival_ns)
        self._tracker.arrive(request, arrivals.prompt, arrivals.output_tokens)
        arrivals.advance()
        return Arrived(request)

    def _fact(self, replica: int, message: FromWorker) -> Event | None:
        if isinstance(message, StepsDone):
            self._silent_since_ns[replica] = self._now_ns() if message.running else None
            self._tracker.ran(replica, message, self.start_ns)
            steps = len(message.ends_ns)
            return Ran(replica, message.epoch, steps, message.finished, message.running)
        if isinstance(message, Alive):
            self._silent_since_ns[replica] = self._now_ns()
            return None
        if isinstance(message, Died):
            self._silent_since_ns[replica] = None
            self._lost.append((replica, message.cause))
            return Lost(replica, message.cause)
        raise RuntimeError(f"worker {replica} sent {message!r} during the run")

    def _handle(self, event: Event) -> None:
        now_ns = self._now_ns()
        began_ns = time.perf_counter_ns()
        actions = self._controller.handle(now_ns, event)
        self._decide_ns.append(time.perf_counter_ns() - began_ns)
        if self._journal is not None:
            self._journal.write(now_ns, event, actions)
        for action in actions:
            self._carry_out(action, now_ns)

    def _carry_out(self, action: Action, now_ns: int) -> None:
        workers = self._pool.workers
        match action:
            case Run(replica, epoch, chunks, decode, max_steps, until_finish, hand_over=False, layers=None):
                self._silent_since_ns[replica] = now_ns
                workers[replica].send(RunSteps(epoch, chunks, decode, max_steps, until_finish))
            case Assign(request, replica):
                hold, before = self._tracker.assign(request, replica)
                if before is not None and before != replica:
                    workers[before].send(Forget(request))
                workers[replica].send(hold)
            case Interrupt(replica, grace_steps=0):
                workers[replica].send(StopSteps())
            case Preempt(replica, request):
                self._tracker.preempt(request)
                workers[replica].send(DropKV(request))
            case Reject(request, reason):
                self._tracker.refuse(request, now_ns, reason)
            case Fail(request, reason):
                held_by = self._tracker.fail(request, now_ns, reason)
                if held_by is not None:
                    workers[held_by].send(Forget(request))
            case _:
                raise RuntimeError(
                    f"real workers cannot carry out {action!r}: each has one whole model for the whole run"
                )

    def _refuse_stall(self) -> None:
        if all(since is None for since in self._silent_since_ns) and self._pool.inbox.empty():
            raise RuntimeError(
                f"the controller left {self._tracker.unfinished} requests unserved: no run is in flight and "
                "nothing more will arrive"
            )

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self.start_ns
