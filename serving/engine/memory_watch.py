"""Finds instances that need no check because their memory is surely enough for a while.

A policy that pairs instances for migration asks for those that may be short of memory; most never are.
Between two changes of its batch an instance loses at most one block per request in as many steps as a block
has tokens. No step is shorter than one that computes only what the instance decodes. So each report implies a
time until which memory is surely enough. The current report counts, and the coming one.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import Final

from serving.engine.engine import Engine
from serving.engine.instance_load import InstanceLoad, report_of
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import NEVER_NS
from serving.vocabulary.step_counts import StepCounts

_QUEUE: Final = LoadReport._fields.index("running")  # all behind it says what runs and waits
_UNKNOWN: Final = 2  # steps: the current one, and one with the prompts of the pass in progress


class MemoryWatch:
    """Watches one model's instances. ``maybe_short``: those that may have fewer than ``ample_blocks`` free.

    All others have enough until ``ample_ns`` by the current report, and until ``coming_ample_ns`` by the
    coming one; ``due_ns``: when that is checked. ``news``: an instance may be short now, or earlier than
    before.
    """

    __slots__ = ("_ample_blocks", "_due", "_known", "_steps", "maybe_short", "news")

    def __init__(
        self, ample_blocks: Callable[[LoadReport], int], steps: StepCounts, known: Mapping[int, InstanceLoad]
    ) -> None:
        self._ample_blocks, self._steps, self._known = ample_blocks, steps, known
        self.maybe_short: dict[int, None] = dict.fromkeys(known)
        self._due: list[tuple[int, int]] = []
        self.news = False

    def comes(self, known: InstanceLoad, coming: LoadReport, now_ns: int) -> None:
        """Batch or queue have changed; ``known.since`` -1: in the middle of a run."""
        free = coming.free_blocks
        known.coming_ample_ns = self._until_ns(known, coming, free, now_ns) if known.since >= 0 else -1
        self._arm(known)

    def moved(self, known: InstanceLoad, tick_ns: int) -> None:
        """The instance's memory has changed, which is reported at the next tick."""
        known.ample_ns = -1
        known.moved_ns = tick_ns
        self.maybe_short[known.engine.id] = None
        self.news = True

    def expire(self, now_ns: int) -> None:
        """Mark instances whose memory was surely enough only until now: they may be short."""
        due = self._due
        while due and due[0][0] <= now_ns:
            due_ns, replica = due[0]
            known = self._known.get(replica)
            if known is None or known.due_ns != due_ns:
                heappop(due)
                continue
            ample_ns = min(known.ample_ns, known.coming_ample_ns)
            if ample_ns > now_ns:
                known.due_ns = ample_ns
                heapreplace(due, (ample_ns, replica))
            else:
                known.due_ns = NEVER_NS
                heappop(due)
                self.maybe_short[replica] = None

    def until_ns(self) -> int:
        """Time until which no instance is short, if nothing changes; 0: one may be short now."""
        return 0 if self.maybe_short else self._due[0][0] if self._due else NEVER_NS

    def again(self, known: InstanceLoad, tick_ns: int) -> bool:
        """Check again whether an instance that may be short, and is settled, surely has enough memory."""
        if known.moved_ns >= tick_ns or known.coming_ample_ns <= tick_ns:
            return False
        report, free = known.report or report_of(known), known.free_blocks
        if known.coming is None:
            known.ample_ns = self._until_ns(known, report, free, tick_ns)
        else:  # nothing of it changes before the coming report is published
            known.ample_ns = NEVER_NS if free >= self._blocks(known, report) else -1
        if known.ample_ns <= tick_ns:
            return False
        del self.maybe_short[known.engine.id]
        self._arm(known)
        return True

    def _arm(self, known: InstanceLoad) -> None:
        until_ns = min(known.ample_ns, known.coming_ample_ns)
        if until_ns < 0:
            self.maybe_short[known.engine.id] = None
            self.news = True
        elif until_ns < known.due_ns:
            self.news = True
            known.due_ns = until_ns
            heappush(self._due, (until_ns, known.engine.id))

    def _until_ns(self, known: InstanceLoad, report: LoadReport, free_blocks: int, since_ns: int) -> int:
        """Time until which memory is surely enough, given ``report`` at ``since_ns``; -1: unknown.

        ``free_blocks`` counts, not those of the report.
        """
        requests, spare = report.running + report.waiting, free_blocks - self._blocks(known, report)
        if not requests:
            return NEVER_NS if spare >= 0 else -1
        if spare < requests or not _completes_prompts(known.engine):
            return -1
        step_ns = known.least_step_ns.get(requests)
        if step_ns is None:
            step_ns = self._steps.least_step_ns(known.engine.id, requests)
            known.least_step_ns[requests] = step_ns
        return since_ns + (spare // requests * report.block_tokens - _UNKNOWN) * step_ns

    def _blocks(self, known: InstanceLoad, report: LoadReport) -> int:
        """The policy's answer, which free blocks do not change; if no request waits, it is kept for ever."""
        if report.waiting:
            queue = report[_QUEUE:]
            if known.ample_of != queue:
                known.ample_of, known.ample_with_queue = queue, self._ample_blocks(report)
            return known.ample_with_queue
        kind = report.running, report.high_running
        blocks = known.ample_blocks.get(kind)
        if blocks is None:
            blocks = known.ample_blocks[kind] = self._ample_blocks(report)
        return blocks


def _completes_prompts(engine: Engine) -> bool:
    """Whether the current pass completes all prompts that have begun."""
    running, complete = engine.running, 0
    for chunk, start, tokens in engine._chunks:
        complete += start + tokens == running[chunk].known_tokens
    return complete == len(engine.prefilling)
