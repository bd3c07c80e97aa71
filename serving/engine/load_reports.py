"""Load reports: what schedulers know of instances, as of the last tick or the last change of a batch.

Between two reports of an engine, a coalesced run knows less than a step-by-step run. So a report is made when
a batch or a queue has changed, and at ticks, once per period from the start: then both runs know the same. An
arrival counts at once; the free blocks beside it are those of the last report.

A tick is no event. When a report is read after a tick, the number of steps that had ended by then is looked
up (``StepCounts``). Before a caller changes an engine's memory or step counter, it has the last tick's report
made.

``at_step_ends``: as in Llumnix's artefact, an instance reports at the end of a step its state at the step's
beginning. Later arrivals, however many, are unknown until the step that takes them in has ended.
``at_ticks``: it reports its state at ticks only, so nothing of a period is known before its end.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from serving.engine.engine import Engine
from serving.engine.instance_load import (
    InstanceLoad,
    free_blocks_after,
    has_begun,
    head_of,
    report_of,
    told_report,
)
from serving.engine.memory_watch import MemoryWatch
from serving.engine.progress import AT_WORK, EngineState
from serving.protocols.load_report import LoadReport, ReportsAt
from serving.protocols.migration import NEVER_NS
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Arrived, Disconnected, Loaded, LoadStopped, Opened, Sent

# At the time of a tick these come before it (``simcore.simulation`` has the order), all others after it.
BEFORE_TICKS: Final = frozenset((Opened, Disconnected, Arrived, Sent, Loaded, LoadStopped))
# What is known to wait at an instance that will report at its step's end that its queue is another.
UNREPORTED: Final = -1


class LoadReports:
    """The load reports of one model's instances."""

    __slots__ = (
        "_changed", "_due_ns", "_known", "_memory_watch", "_present", "_rising", "_steps", "_swept_ns",
        "_tick_ns", "_unread", "at_changes", "at_step_ends", "at_ticks", "period_ns",
    )  # fmt: skip

    def __init__(
        self,
        engines: Mapping[int, Engine],
        replicas: Iterable[int],
        period_ns: int,
        present: Present,
        at: ReportsAt = "changes",
    ) -> None:
        self.at_changes, self.at_step_ends, self.at_ticks = at == "changes", at == "step_ends", at == "ticks"
        self.period_ns, self._present, self._steps = period_ns, present, present.step_counts
        self._steps.read = True
        self._tick_ns, self._due_ns = 0, period_ns  # of the last tick, and of the next
        self._known: dict[int, InstanceLoad] = {}
        self._changed: dict[int, None] = {}
        self._unread: list[dict[int, None]] = [{}]
        # By instance, the last tick before an unreported change; ``_swept_ns``: last tick handled.
        self._rising: dict[int, int] = {}
        self._swept_ns = 0
        self._memory_watch: MemoryWatch | None = None
        for replica in replicas:
            self.add(engines[replica])

    def watch(self, ample_blocks: Callable[[LoadReport], int]) -> MemoryWatch | None:
        """Watch for instances ``short`` of memory; None: reports are not made at step ends."""
        if self.at_step_ends:
            self._memory_watch = MemoryWatch(ample_blocks, self._steps, self._known)
        return self._memory_watch

    def add(self, engine: Engine) -> None:
        """Begin to make reports of an instance."""
        before, known = self._known.get(engine.id), InstanceLoad(engine)
        known.high_now = 0 if before is None else before.high_now
        self._known[engine.id] = known
        self._read_engine(known, free_blocks_after(engine, 0))
        self._changed[engine.id] = None
        if not self.at_changes:
            report_of(known)
        if self._memory_watch is not None:
            self._memory_watch.moved(known, self._tick())

    def joined(self, engine: Engine) -> None:
        """An instance takes requests, for the first time or again; if it was draining it may be at work."""
        if engine.id in self._known and engine.state in AT_WORK:
            self._changed[engine.id] = None
        else:
            self.add(engine)

    def of(self, replica: int) -> LoadReport | None:
        """The last report; None: the instance is lost."""
        known = self._known.get(replica)
        if known is None:
            return None
        if known.tick_ns < (self._tick() if self._present.now_ns >= self._due_ns else self._tick_ns):
            self._settle(known)
        return told_report(known)

    def known(self, replica: int) -> InstanceLoad | None:
        """What is known of the instance, reported or not; None: the instance is lost."""
        return self._known.get(replica)

    def may_change(self, replica: int) -> bool:
        """Whether a change at the instance waits for a tick to be reported."""
        return self.at_ticks and replica in self._rising

    def reader(self) -> int:
        """Register another reader of changes; returns its number."""
        self._unread.append({})
        return len(self._unread) - 1

    def changed(self, reader: int = 0) -> list[int]:
        """Instances with a new report since this reader last asked; others have only fewer free blocks."""
        if self._rising and (tick_ns := self._tick()) > self._swept_ns:
            self._mark_due(tick_ns)
        for unread in self._unread:
            unread.update(self._changed)
        self._changed.clear()
        unread_replicas = list(self._unread[reader])
        self._unread[reader].clear()
        return unread_replicas

    def _mark_due(self, tick_ns: int) -> None:
        """Handle a passed tick: mark instances with reports due by then as changed."""
        self._swept_ns = tick_ns
        rising, known_of = self._rising, self._known
        for replica in [
            rising_replica for rising_replica, before_ns in rising.items() if before_ns < tick_ns
        ]:
            known = known_of[replica]
            if known.tick_ns < tick_ns and (self.at_ticks or known.coming is not None):
                self._settle(known)
            if known.coming is None:
                self._changed[replica] = None
            elif known.engine.state in AT_WORK:  # a step is in progress of which nothing is reported yet
                rising[replica] = tick_ns
                continue
            del rising[replica]  # idle: its next report begins with a request

    def short(self) -> list[int]:
        """Instances that may have fewer free blocks than ``ample_blocks``, ascending; no others have."""
        watch = self._memory_watch
        assert watch is not None, "nobody watches"
        tick_ns, replicas = self._tick(), list[int]()
        watch.expire(self._present.now_ns)
        for replica in sorted(watch.maybe_short):
            known = self._known[replica]
            if known.tick_ns < tick_ns:
                self._settle(known)
            if not watch.again(known, tick_ns):
                replicas.append(replica)
        return replicas

    def settle(self, replica: int) -> None:
        """Make an instance's report of the last tick before its engine changes."""
        known = self._known.get(replica)
        if known is None:
            return
        if known.tick_ns < (self._tick() if self._present.now_ns >= self._due_ns else self._tick_ns):
            self._settle(known)

    def count_high(self, replica: int, more: int) -> None:
        """Change the number of its requests of high priority by ``more``."""
        known = self._known.get(replica)
        if known is not None:
            known.high_now += more

    def arrived(self, replica: int) -> bool:
        """Record a request given to an instance: it waits there, or a pass may have begun.

        Returns whether the run is to end at the next boundary, since new waiting requests are reported at a
        step's end.
        """
        known = self._known[replica]
        if self.at_ticks:
            self._rising[replica] = self._tick()
            return False
        engine = known.engine
        begun = has_begun(known)
        if self.at_step_ends:
            if begun:
                self._prepare_report(known, known.steps)
            return not begun and engine.state is EngineState.RUNNING and engine._steps_left > 1
        self._read_engine(known, free_blocks_after(engine, 0) if begun else known.free_blocks)
        self._changed[replica] = None
        return False

    def withdrew(self, replica: int) -> None:
        """A request has left an instance's queue, maybe within a step: its free blocks are not known then."""
        known = self._known.get(replica)
        if known is None:
            return
        if known.engine.state not in AT_WORK:
            self.look(replica)
        elif self.at_ticks:
            self._rising[replica] = self._tick()
        elif self.at_step_ends:
            known.waiting = UNREPORTED
        else:
            self._read_engine(known, known.free_blocks)
            self._changed[replica] = None

    def look(self, replica: int, finished: bool = False, steps: int = -1) -> None:
        """Check an instance between two steps, or as it begins work: has its batch or queue changed?

        ``steps``: number just reported; -1: none.
        """
        known = self._known.get(replica)
        if known is None:
            return
        engine, since = known.engine, -1
        if steps >= 0:
            known.steps += steps
            since = known.steps
        if (
            finished
            or len(engine.running) - len(engine.ended) != known.running
            or len(engine.waiting) + len(engine.unseen_arrivals) != known.waiting
            or engine.preemptions != known.preemptions
            or known.high != known.high_now
            or known.head != head_of(engine)
        ):
            if self.at_ticks:
                self._rising[replica] = self._tick()
            elif self.at_step_ends:
                self._prepare_report(known, since)
            else:
                self._read_engine(known, free_blocks_after(engine, 0))
                self._changed[replica] = None

    def moved(self, replica: int) -> None:
        """Record that KV of a migration has come or left, or room is reserved for it; reported at a tick.

        As ``look`` if the instance has begun to work; in the middle of a step ``at_step_ends`` reports
        nothing.
        """
        known = self._known.get(replica)
        if known is not None:
            tick_ns = self._tick()
            if self._rising.get(replica, tick_ns) < tick_ns:
                self._changed[replica] = None
            self._rising[replica] = tick_ns
            if not self.at_step_ends or has_begun(known):
                self.look(replica)
            if self._memory_watch is not None:
                self._memory_watch.moved(known, tick_ns)

    def lose(self, replica: int) -> None:
        """Forget an instance that is lost."""
        self._known.pop(replica, None)
        if self._memory_watch is not None:
            self._memory_watch.maybe_short.pop(replica, None)
        self._changed.pop(replica, None)
        self._rising.pop(replica, None)

    def _tick(self) -> int:
        """Time of the last tick."""
        present = self._present
        now_ns = present.now_ns
        if now_ns >= self._due_ns:
            tick_ns = now_ns // self.period_ns * self.period_ns
            if tick_ns == now_ns and type(present.event) in BEFORE_TICKS:
                tick_ns -= self.period_ns
            if tick_ns > self._tick_ns:
                self._tick_ns = tick_ns
                self._due_ns = tick_ns + self.period_ns
        return self._tick_ns

    def _settle(self, known: InstanceLoad) -> None:
        """Update a report of before the last tick."""
        engine = known.engine
        known.tick_ns = tick_ns = self._tick_ns
        steps = self._steps.steps(engine.id, tick_ns) if engine.state in AT_WORK else 0
        if known.coming is not None:
            if known.steps + steps <= known.since:
                return
            self._publish(known)
        free = free_blocks_after(engine, steps)
        if self.at_ticks and engine.id in self._rising:
            self._read_engine(known, free)
            report_of(known)
            self._changed[engine.id] = None
            return
        known.free_blocks = free
        if self.at_changes and known.report and free != known.report.free_blocks:
            known.report = None

    def _prepare_report(self, known: InstanceLoad, since: int) -> None:
        """Report the current batch and queue after another step. ``since`` -1: at the next tick."""
        if known.coming is not None and known.steps > known.since:
            self._publish(known)
        report, free = known.report, known.free_blocks
        self._read_engine(known, free_blocks_after(known.engine, 0))
        known.coming, known.since = report_of(known), since
        known.report, known.free_blocks = report, free
        if self._memory_watch is not None:
            self._memory_watch.comes(known, known.coming, self._present.now_ns)
        self._rising[known.engine.id] = known.tick_ns

    def _publish(self, known: InstanceLoad) -> None:
        """Publish the coming report: the step has ended."""
        coming = known.coming
        assert coming is not None
        known.report, known.free_blocks, known.coming = coming, coming.free_blocks, None
        known.ample_ns, known.coming_ample_ns = known.coming_ample_ns, NEVER_NS
        self._changed[known.engine.id] = None

    def _read_engine(self, known: InstanceLoad, free_blocks: int) -> None:
        """Set the values to the current state of the engine."""
        engine = known.engine
        known.free_blocks, known.tick_ns = free_blocks, self._tick()
        known.running = len(engine.running) - len(engine.ended)
        known.waiting = len(engine.waiting) + len(engine.unseen_arrivals)
        known.preemptions, known.high, known.head = engine.preemptions, known.high_now, head_of(engine)
        known.report = None
