"""Which instances need not be looked at, because their memory surely is enough for a while.

Who pairs instances for migration asks for those that may be short of it; most never are. Between two changes
of its batch an instance loses no more than a block per request in as many steps as a block has tokens, and no
step is shorter than one in which nothing is computed but what it decodes. So each report is calm until a
time. The one that is told counts, and the one that is coming.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import Final

from serving.engine.engine import Engine
from serving.engine.instance_load import InstanceLoad, told_report
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import NEVER_NS
from serving.vocabulary.step_counts import StepCounts

_UNKNOWN: Final = 2  # steps: the one that is under way, and one with the prompts of the pass in progress


class Calm:
    """Of the instances of a model. ``restless``: those that may have fewer free blocks than ``calm_blocks``.

    All others have more until ``calm_ns`` by the report that is told, and until ``coming_calm_ns`` by the one
    that is coming; ``due_ns`` is when that is looked at. ``news``: one is restless now, or may be earlier.
    """

    __slots__ = ("_calm_blocks", "_due", "_known", "_steps", "news", "restless")

    def __init__(
        self, calm_blocks: Callable[[LoadReport], int], steps: StepCounts, known: Mapping[int, InstanceLoad]
    ) -> None:
        self._calm_blocks, self._steps, self._known = calm_blocks, steps, known
        self.restless: dict[int, None] = dict.fromkeys(known)
        self._due: list[tuple[int, int]] = []
        self.news = False

    def comes(self, known: InstanceLoad, coming: LoadReport, now_ns: int) -> None:
        """Batch or queue have changed; ``known.since`` -1: in the middle of a run."""
        known.coming_calm_ns = self._until_ns(known, coming, now_ns) if known.since >= 0 else -1
        self._arm(known)

    def moved(self, known: InstanceLoad, tick_ns: int) -> None:
        """Its memory has changed, which is told at the tick after this one."""
        known.calm_ns = -1
        known.moved_ns = tick_ns
        self.restless[known.engine.id] = None
        self.news = True

    def expire(self, now_ns: int) -> None:
        """Those that were calm until now are so no more."""
        due = self._due
        while due and due[0][0] <= now_ns:
            due_ns, replica = due[0]
            known = self._known.get(replica)
            if known is None or known.due_ns != due_ns:
                heappop(due)
                continue
            calm_ns = min(known.calm_ns, known.coming_calm_ns)
            if calm_ns > now_ns:
                known.due_ns = calm_ns
                heapreplace(due, (calm_ns, replica))
            else:
                known.due_ns = NEVER_NS
                heappop(due)
                self.restless[replica] = None

    def until_ns(self) -> int:
        """Until when none becomes restless, if nothing changes; 0: one is."""
        return 0 if self.restless else self._due[0][0] if self._due else NEVER_NS

    def again(self, known: InstanceLoad, tick_ns: int) -> bool:
        """A restless one has been settled: is it calm now?"""
        if known.moved_ns >= tick_ns or known.coming_calm_ns <= tick_ns:
            return False
        report = told_report(known)
        if known.coming is None:
            known.calm_ns = self._until_ns(known, report, tick_ns)
        else:  # nothing of it changes before the other one is told
            known.calm_ns = NEVER_NS if report.free_blocks >= self._blocks(known, report) else -1
        if known.calm_ns <= tick_ns:
            return False
        del self.restless[known.engine.id]
        self._arm(known)
        return True

    def _arm(self, known: InstanceLoad) -> None:
        until_ns = min(known.calm_ns, known.coming_calm_ns)
        if until_ns < 0:
            self.restless[known.engine.id] = None
            self.news = True
        elif until_ns < known.due_ns:
            self.news = True
            known.due_ns = until_ns
            heappush(self._due, (until_ns, known.engine.id))

    def _until_ns(self, known: InstanceLoad, report: LoadReport, since_ns: int) -> int:
        """Until when it surely has memory enough, if that is ``report``'s at ``since_ns``; -1: who knows."""
        requests, spare = report.running + report.waiting, report.free_blocks - self._blocks(known, report)
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
        """The policy's answer; of an instance where no request waits it is kept, by what runs there."""
        if report.waiting:
            return self._calm_blocks(report)
        kind = report.running, report.high_running
        blocks = known.calm_blocks.get(kind)
        if blocks is None:
            blocks = known.calm_blocks[kind] = self._calm_blocks(report)
        return blocks


def _completes_prompts(engine: Engine) -> bool:
    """Whether the pass in progress computes all that is left of the prompts that are begun."""
    running, complete = engine.running, 0
    for one, start, tokens in engine._chunks:
        complete += start + tokens == running[one].known_tokens
    return complete == len(engine.prefilling)
