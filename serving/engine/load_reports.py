"""What schedulers know of instances: load reports, as old as the last tick or the last change of a batch.

Between two reports of an engine a coalesced run knows less than one step by step. So a report is made when a
batch or a queue has changed, and at ticks, once per period from the beginning on: both runs know the same
then. An arrival counts at once; the free blocks beside it are those of the last report.

A tick is no event. Who reads a report after it asks how many steps had ended by then (``StepCounts``); who
is about to change an engine's memory or its step counter has the report of the last tick made before.

``at_step_ends``: as Llumnix's artefact has it, an instance tells at the end of a step how it stood when that
began. So what came to it since is not known, however many come, until the step that takes them in has ended.
``at_ticks``: it tells at ticks alone how it stands then, so nothing of a period is known before its end.
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
from serving.vocabulary.events import Arrived, Loaded, LoadStopped, Opened, Sent
from serving.vocabulary.present import Present

# At the time of a tick these come before it (``simcore.simulation`` has the order), all others after it.
BEFORE_TICKS: Final = frozenset((Opened, Arrived, Sent, Loaded, LoadStopped))


class LoadReports:
    """Those of the instances of a model."""

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
        # What has come to it, or has left, is told at a later tick than this one; ticks up to it are seen to.
        self._rising: dict[int, int] = {}
        self._swept_ns = 0
        self._memory_watch: MemoryWatch | None = None
        for replica in replicas:
            self.add(engines[replica])

    def watch(self, ample_blocks: Callable[[LoadReport], int]) -> MemoryWatch | None:
        """Somebody asks which are ``short`` of memory; None: that is not known of reports at changes."""
        if self.at_step_ends:
            self._memory_watch = MemoryWatch(ample_blocks, self._steps, self._known)
        return self._memory_watch

    def add(self, engine: Engine) -> None:
        """An instance makes reports from now on."""
        before, known = self._known.get(engine.id), InstanceLoad(engine)
        known.high_now = 0 if before is None else before.high_now
        self._known[engine.id] = known
        self._renew(known, free_blocks_after(engine, 0))
        self._changed[engine.id] = None
        if not self.at_changes:
            report_of(known)
        if self._memory_watch is not None:
            self._memory_watch.moved(known, self._tick())

    def joined(self, engine: Engine) -> None:
        """An instance takes requests, for the first time or again; one that drained may be at work."""
        if engine.id in self._known and engine.state in AT_WORK:
            self._changed[engine.id] = None
        else:
            self.add(engine)

    def of(self, replica: int) -> LoadReport | None:
        """The last one; None: the instance is gone."""
        known = self._known.get(replica)
        if known is None:
            return None
        if known.tick_ns < (self._tick() if self._present.now_ns >= self._due_ns else self._tick_ns):
            self._settle(known)
        return told_report(known)

    def known(self, replica: int) -> InstanceLoad | None:
        """What is known of it, told or not; None: the instance is gone."""
        return self._known.get(replica)

    def may_change(self, replica: int) -> bool:
        """Whether something has come or gone there that is told at a tick, and has not been told yet."""
        return self.at_ticks and replica in self._rising

    def reader(self) -> int:
        """Somebody else asks what has changed: the number to ask with."""
        self._unread.append({})
        return len(self._unread) - 1

    def changed(self, reader: int = 0) -> list[int]:
        """Those with a new one since this reader last asked. All others have only fewer free blocks."""
        if self._rising and (tick_ns := self._tick()) > self._swept_ns:
            self._sweep(tick_ns)
        for unread in self._unread:
            unread.update(self._changed)
        self._changed.clear()
        found = list(self._unread[reader])
        self._unread[reader].clear()
        return found

    def _sweep(self, tick_ns: int) -> None:
        """Another tick has passed: who has told something by then?"""
        self._swept_ns = tick_ns
        rising, known_of = self._rising, self._known
        for replica in [one for one, before_ns in rising.items() if before_ns < tick_ns]:
            known = known_of[replica]
            if known.tick_ns < tick_ns and (self.at_ticks or known.coming is not None):
                self._settle(known)
            if known.coming is None:
                self._changed[replica] = None
            elif known.engine.state in AT_WORK:  # a step is under way of which nothing is told yet
                rising[replica] = tick_ns
                continue
            del rising[replica]  # idle: what it tells next begins with a request

    def short(self) -> list[int]:
        """Those that may have fewer free blocks than ``ample_blocks``, ascending; no others have."""
        watch = self._memory_watch
        assert watch is not None, "nobody watches"
        tick_ns, found = self._tick(), list[int]()
        watch.expire(self._present.now_ns)
        for replica in sorted(watch.maybe_short):
            known = self._known[replica]
            if known.tick_ns < tick_ns:
                self._settle(known)
            if not watch.again(known, tick_ns):
                found.append(replica)
        return found

    def settle(self, replica: int) -> None:
        """Its engine is about to change: its report of the last tick is made."""
        known = self._known.get(replica)
        if known is None:
            return
        if known.tick_ns < (self._tick() if self._present.now_ns >= self._due_ns else self._tick_ns):
            self._settle(known)

    def count_high(self, replica: int, more: int) -> None:
        """So many more of its requests have a high priority."""
        known = self._known.get(replica)
        if known is not None:
            known.high_now += more

    def arrived(self, replica: int) -> bool:
        """A request was given to it: at work it waits there; else a pass may have begun.

        Returns whether its run is to end at the next boundary: what waits since is told at the end of a step.
        """
        known = self._known[replica]
        if self.at_ticks:
            self._rising[replica] = self._tick()
            return False
        engine = known.engine
        begun = has_begun(known)
        if self.at_step_ends:
            if begun:
                self._comes(known, known.steps)
            return not begun and engine.state is EngineState.RUNNING and engine._steps_left > 1
        self._renew(known, free_blocks_after(engine, 0) if begun else known.free_blocks)
        self._changed[replica] = None
        return False

    def look(self, replica: int, finished: bool = False, steps: int = -1) -> None:
        """It stands between two steps, or begins to work: has its batch or its queue changed?

        ``steps``: that it has just reported; -1: it reports none.
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
                self._comes(known, since)
            else:
                self._renew(known, free_blocks_after(engine, 0))
                self._changed[replica] = None

    def moved(self, replica: int) -> None:
        """KV of a migration has come, has left, or room is kept for it: nothing tells that before a tick.

        As ``look`` if it has begun to work; in the middle of a step ``at_step_ends`` tells nothing of it.
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
        """The instance is gone."""
        self._known.pop(replica, None)
        if self._memory_watch is not None:
            self._memory_watch.maybe_short.pop(replica, None)
        self._changed.pop(replica, None)
        self._rising.pop(replica, None)

    def _tick(self) -> int:
        """When the last tick was."""
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
        """A tick has passed since its report was made."""
        engine = known.engine
        known.tick_ns = tick_ns = self._tick_ns
        steps = self._steps.steps(engine.id, tick_ns) if engine.state in AT_WORK else 0
        if known.coming is not None:
            if known.steps + steps <= known.since:
                return
            self._tell(known)
        free = free_blocks_after(engine, steps)
        if self.at_ticks and engine.id in self._rising:
            self._renew(known, free)
            report_of(known)
            self._changed[engine.id] = None
            return
        known.free_blocks = free
        if self.at_changes and known.report and free != known.report.free_blocks:
            known.report = None

    def _comes(self, known: InstanceLoad, since: int) -> None:
        """Batch and queue as they are now will be told after another step. ``since`` -1: at the next tick."""
        if known.coming is not None and known.steps > known.since:
            self._tell(known)
        told, free = known.report, known.free_blocks
        self._renew(known, free_blocks_after(known.engine, 0))
        known.coming, known.since = report_of(known), since
        known.report, known.free_blocks = told, free
        if self._memory_watch is not None:
            self._memory_watch.comes(known, known.coming, self._present.now_ns)
        self._rising[known.engine.id] = known.tick_ns

    def _tell(self, known: InstanceLoad) -> None:
        """The step has ended."""
        coming = known.coming
        assert coming is not None
        known.report, known.free_blocks, known.coming = coming, coming.free_blocks, None
        known.ample_ns, known.coming_ample_ns = known.coming_ample_ns, NEVER_NS
        self._changed[known.engine.id] = None

    def _renew(self, known: InstanceLoad, free_blocks: int) -> None:
        """As its engine stands now."""
        engine = known.engine
        known.free_blocks, known.tick_ns = free_blocks, self._tick()
        known.running = len(engine.running) - len(engine.ended)
        known.waiting = len(engine.waiting) + len(engine.unseen_arrivals)
        known.preemptions, known.high, known.head = engine.preemptions, known.high_now, head_of(engine)
        known.report = None
