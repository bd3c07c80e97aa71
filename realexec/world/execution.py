"""One run by the wall clock: one inbox, and one thread that owns the controller.

This thread passes events to the controller in the order in which it takes them. An event's time is the moment
it is taken, in ns since all workers were ready. This module makes no decisions.
"""

import queue
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from realexec.wire.messages import Alive, Died, Fetched, FromWorker, Located, Pulled, RoundsDone, StepsDone
from realexec.world.actions import World
from realexec.world.arrivals import Arrivals
from realexec.world.due import Due
from realexec.world.report import CpuTime, Moved, RunReport
from realexec.world.reported import Reported
from realexec.world.slots import Pool, Slots
from realexec.world.tracking import Tracker
from realexec.world.unreported import UnreportedSteps
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Closing, Event, Opened, Woke
from serving.vocabulary.step_counts import StepCounts, register
from serving.vocabulary.units import NS_PER_S

# Workers' reports of lost peers, held back until the driver knows whether those peers died.
# A worker that reads from a killed peer may notice before the driver does. The driver accepts its report
# once the peer's own exit has been reported, which ends everything in progress with it. It also accepts it
# once the peer has sent a heartbeat since then: in that case only the connection to the peer broke.

# A worker sends a heartbeat every half second; its exit is reported at once.
LOOK_S: Final = 0.02
# By then a stopped worker is lost. Any other is a worker that runs but keeps its interpreter lock.
PATIENCE_NS: Final = 10 * NS_PER_S
_READERS: Final = (Pulled, Fetched, RoundsDone)


class HeldReports:
    """The reports held back. Only the driver's thread calls it."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._open: list[tuple[int, int, FromWorker]] = []  # (time in ns, reporting slot, message)

    def __bool__(self) -> bool:
        return bool(self._open)

    def puts_off(self, slot: int, message: FromWorker) -> bool:
        """Whether this message must be held back; it is stored if so."""
        if not isinstance(message, _READERS) or message.lost_peer is None:
            return False
        self._open.append((time.monotonic_ns(), slot, message))
        return True

    def settled(self) -> tuple[int, FromWorker] | None:
        """Return one message that can be accepted now, as (slot that sent it, message), or None."""
        for reports in self._open:
            since_ns, slot, message = reports
            assert isinstance(message, _READERS) and message.lost_peer is not None
            known = message.lost_peer in self._slots.dead
            known = known or self._slots.runs_since(message.lost_peer, since_ns)
            if known or time.monotonic_ns() - since_ns > PATIENCE_NS:
                self._open.remove(reports)
                return slot, message
        return None


# The costs of a run beside the requested steps: CPU time of the driver and of its workers.


class Costs:
    """Counts CPU time from the moment all workers are ready. Only the driver's thread calls it."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self._workers = workers
        self._driver_ns = time.process_time_ns()
        self._began_ns = [worker.cpu_ns() for worker in workers]
        self._steps_ns = self._reads_ns = 0

    def stepped(self, cpu_ns: int) -> None:
        """Add CPU time that a worker's compute thread used for steps."""
        self._steps_ns += cpu_ns

    def read(self, cpu_ns: int) -> None:
        """Add CPU time that a worker's data thread used for a read."""
        self._reads_ns += cpu_ns

    def so_far(self) -> CpuTime:
        """Sum up to now. A worker that has exited counts as zero, because its CPU time is not known."""
        used = [worker.cpu_ns() - began for worker, began in zip(self._workers, self._began_ns, strict=True)]
        workers_ns = sum(cpu_ns for cpu_ns in used if cpu_ns > 0)
        driver_ns = time.process_time_ns() - self._driver_ns
        return CpuTime(driver_ns, workers_ns, self._steps_ns, self._reads_ns)


# After this many wakes of the controller in a row, with nothing in progress, the run counts as stalled.
IDLE_LOOKS: Final = 1000
# Minimum time between two checks for silent workers; a quarter of the report timeout if that is shorter.
SILENCE_LOOK_NS: Final = NS_PER_S
NOBODY_LEFT: Final = "the remaining workers can serve no request"


class Controller(Protocol):
    """What the driver uses of `serving.controller.Controller`."""

    @property
    def step_counts(self) -> StepCounts | None: ...

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """Handle one event; returns actions."""


class Journal(Protocol):
    """Writes the run to a journal from which it can be replayed."""

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Write one event, in order; ``counts``: step counts that the controller read since the last."""


class Execution:
    """The state of one run. Only the thread that calls `run` touches it."""

    def __init__(
        self,
        *,
        controller: Controller,
        pool: Pool,
        world: World,
        tracker: Tracker,
        journal: Journal | None,
        report_timeout_s: float,
        opens: bool,
    ) -> None:
        """``opens``: whether the controller first receives `Opened`, because it uses loads or rounds."""
        self._controller, self._pool, self._world, self._tracker = controller, pool, world, tracker
        self._journal = journal
        self._report_timeout_ns = int(report_timeout_s * NS_PER_S)
        self._look_ns = 0
        self._opens = opens
        self.start_ns = time.monotonic_ns()
        asked = controller.step_counts
        measures = asked is not None and asked.measures
        source = Reported(tracker.measures() if measures else None)
        # Scalers that ask what was measured of requests need each report at once.
        self._unreported = UnreportedSteps(source, self.start_ns) if asked and not measures else None
        self._counts = register(asked, self._unreported or source, journal is not None)
        self._idle_looks = 0
        self._held = HeldReports(world.slots)
        self._lost: list[tuple[int, str]] = []
        self._closed = False  # whether the controller has received `Closing`
        self._decide_ns = array("q")
        self._costs = Costs(pool.workers)

    def run(
        self, arrivals: Arrivals, on_progress: Callable[[int, int], None] | None, start_s: float
    ) -> RunReport:
        """Run until the last request has ended."""
        due = Due(arrivals, self._tracker, self._world)
        if self._opens:
            self._handle(Opened())
        while due.has_arrivals or self._tracker.unfinished:
            event = self._next_event(due)
            if event is not None:
                self._handle(event)
                due.handled(self._now_ns())
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
            lateness_ns=due.lateness_ns,
            taken_ns=due.taken_ns,
            moved=self._moved(),
            cpu=self._costs.so_far(),
        )

    def _moved(self) -> Moved:
        loads, sends, counts = self._world.loads, self._world.sends, self._world.counts
        return Moved(
            loads=loads.loads,
            loads_stopped=loads.stopped,
            loaded_bytes=loads.pulled_bytes,
            units_forwarded=loads.from_loading,
            live_passes=counts.live_passes,
            live_layer_counts=tuple(sorted(counts.live_layer_counts)),
            migrations=counts.migrations,
            handoffs=counts.handoffs,
            kv_bytes=sends.moved_bytes["kv"],
            activation_bytes=sends.moved_bytes["activations"] + self._world.paths.activation_bytes,
            stages=len(self._world.paths.stages),
            stage_passes=self._world.paths.passes,
        )

    # The next event.

    def _next_event(self, due: Due) -> Event | None:
        """Return the next event; None if the wait ended without one.

        Facts go before due arrivals and wakes. Arrivals do not starve: a worker reports once per run it was
        given, once per finish, and once per unit and transfer it was told to bring.
        """
        if self._world.facts:
            return self._world.facts.popleft()
        settled = self._held.settled()
        if settled is not None:
            return self._fact(*settled)
        if not due.has_arrivals and self._is_stalled():
            return self._closing()
        wait_s = min([(time_ns - self._now_ns()) / NS_PER_S for time_ns in due.times_ns()] + [self._look_s()])
        try:
            received = self._pool.inbox.get(wait_s > 0, wait_s)
            return None if self._held.puts_off(*received) else self._fact(*received)
        except queue.Empty:
            self._end_silent_workers()
            return due.take(self._now_ns())

    def _fact(self, slot: int, message: FromWorker) -> Event | None:
        """Turn a worker's report into an event; None if the controller needs none yet."""
        world, replica = self._world, self._world.slots.replica_at(slot)
        if isinstance(message, StepsDone):
            assert replica is not None
            return self._steps_done(replica, message)
        if isinstance(message, RoundsDone):
            for _, _, cpu_ns, read_cpu_ns in message.costs:
                self._costs.stepped(cpu_ns)
                self._costs.read(read_cpu_ns)
            return world.paths.done(slot, message, self.start_ns)
        if isinstance(message, Alive):
            if replica is not None:
                world.runs.heard(replica, self._now_ns())
                world.paths.heard(replica, self._now_ns())
        elif isinstance(message, Pulled):
            self._costs.read(message.cpu_ns)
            world.loads.pulled(slot, message)
        elif isinstance(message, Located):
            world.sends.located(message)
        elif isinstance(message, Fetched):
            self._costs.read(message.cpu_ns)
            world.sends.fetched(message)
        elif isinstance(message, Died):
            if self._unreported is not None and replica is not None:
                self._unreported.lose(replica)
            self._lost.append((slot if replica is None else replica, message.cause))
            world.lose(slot, message.cause, self._opens)
        else:
            raise RuntimeError(f"worker {slot} sent {message!r} during the run")
        return world.facts.popleft() if world.facts else None

    def _steps_done(self, replica: int, message: StepsDone) -> Event | None:
        """Account for a worker's report of steps; None if nothing is to be decided after them."""
        self._costs.stepped(message.cpu_ns)
        if self._unreported is not None:
            if self._unreported.keeps(replica, message):
                self._world.runs.heard(replica, self._now_ns())
                return None
            message = self._unreported.event(replica, message)
        finished = self._tracker.ran(replica, message, self.start_ns)
        self._world.finished(finished, replica)
        return self._world.runs.ran(replica, message._replace(finished=finished), self._now_ns())

    def _handle(self, event: Event) -> None:
        now_ns = self._now_ns()
        began_ns = time.perf_counter_ns()
        actions = self._controller.handle(now_ns, event)
        self._decide_ns.append(time.perf_counter_ns() - began_ns)
        if self._journal is not None:
            counts = () if self._counts is None else (self._counts.take(),)
            self._journal.write(now_ns, event, actions, *counts)
        for action in actions:
            self._world.carry_out(action, now_ns)
        self._idle_looks = self._idle_looks + 1 if isinstance(event, Woke) else 0

    # Silent workers and stalled runs.

    def _look_s(self) -> float:
        """How long to wait at most before the next check for silent workers."""
        left_s = max(self._look_ns - self._now_ns(), 0) / NS_PER_S
        return min(left_s, LOOK_S) if self._held else left_s

    def _end_silent_workers(self) -> None:
        """Kill workers that have been silent too long: a process that hangs counts as lost."""
        now_ns = self._now_ns()
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + min(SILENCE_LOOK_NS, self._report_timeout_ns // 4)
        timeout_ns = self._report_timeout_ns
        silent = [*self._world.runs.silent(now_ns, timeout_ns), *self._world.paths.silent(now_ns, timeout_ns)]
        for replica in silent:
            self._world.slots.end(self._world.slots.of(replica))

    def _is_stalled(self) -> bool:
        looks = self._world.wake_ns is not None and self._idle_looks < IDLE_LOOKS
        return not (looks or self._world.is_busy) and self._stays_silent()

    def _closing(self) -> Event:
        """End the run after a loss, as a simulation does; without a loss the controller is at fault."""
        if not self._lost or self._closed:
            raise RuntimeError(
                f"the controller left {self._tracker.unfinished} requests unserved: no run is in flight and "
                "nothing more will arrive"
            )
        self._closed = True
        return Closing(NOBODY_LEFT)

    def _stays_silent(self) -> bool:
        """Whether every worker sends a heartbeat and nothing else: an exit may not have been reported yet.

        A worker that stays silent too long, and is not found to be lost either, is killed.
        """
        slots, since_ns = self._world.slots, time.monotonic_ns()
        while self._pool.inbox.empty():
            unknown = slots.unknown_since(since_ns)
            if not unknown:
                return self._pool.inbox.empty()
            if time.monotonic_ns() - since_ns > self._report_timeout_ns:
                for slot in unknown:
                    slots.end(slot)
            time.sleep(LOOK_S)
        return False

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self.start_ns
