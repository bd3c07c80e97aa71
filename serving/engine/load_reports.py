"""What schedulers know of instances: load reports, as old as the last tick or the last change of a batch.

Between two reports of an engine a coalesced run knows less than one step by step. So a report is made when a
batch or a queue has changed, and at ticks, when the world says how many steps have run since: both runs know
the same then. An arrival counts at once; the free blocks beside it are those of the last report.
"""

from collections.abc import Iterable, Mapping

from serving.engine.engine import Engine
from serving.protocols.load_report import LoadReport


class LoadReports:
    """The last one of each instance of a model; ``changed``: which are new since it was asked."""

    __slots__ = ("_changed", "_engines", "_preemptions", "_reports")

    def __init__(self, engines: Mapping[int, Engine], replicas: Iterable[int]) -> None:
        self._engines = engines
        self._reports: dict[int, LoadReport] = {}
        self._preemptions: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        for replica in replicas:
            self._renew(engines[replica], free_blocks_after(engines[replica], 0))

    def of(self, replica: int) -> LoadReport | None:
        """The last one; None: the instance is gone."""
        return self._reports.get(replica)

    def changed(self) -> list[int]:
        """The instances with a new one since the last call."""
        found = list(self._changed)
        self._changed.clear()
        return found

    def arrived(self, replica: int) -> None:
        """A request was given to it: at work it waits there; else a pass may have begun."""
        engine, last = self._engines[replica], self._reports[replica]
        begun = len(engine.running) - len(engine.ended) != last.running
        self._renew(engine, free_blocks_after(engine, 0) if begun else last.free_blocks)

    def look(self, replica: int, finished: bool = False) -> None:
        """It stands between two steps, or begins to work: has its batch or its queue changed?"""
        last = self._reports.get(replica)
        if last is None:
            return
        engine = self._engines[replica]
        if (
            finished
            or len(engine.running) - len(engine.ended) != last.running
            or len(engine.waiting) + len(engine.unseen_arrivals) != last.waiting
            or engine.preemptions != self._preemptions[replica]
        ):
            self._renew(engine, free_blocks_after(engine, 0))

    def tick(self, steps: Mapping[int, int]) -> None:
        """All report. ``steps``: by replica, that have run since what its engine knows."""
        for replica, last in tuple(self._reports.items()):
            engine = self._engines[replica]
            free = free_blocks_after(engine, steps.get(replica, 0))
            if free != last.free_blocks:
                self._reports[replica] = last._replace(free_blocks=free)
                self._changed[replica] = None

    def lose(self, replica: int) -> None:
        """The instance is gone."""
        self._reports.pop(replica, None)

    def _renew(self, engine: Engine, free_blocks: int) -> None:
        ledger, queue = engine.ledger, [*engine.waiting, *engine.unseen_arrivals]
        self._reports[engine.id] = LoadReport(
            ledger.total_blocks,
            ledger.watermark_blocks,
            ledger.block_tokens,
            free_blocks,
            len(engine.running) - len(engine.ended),
            len(queue),
            sum([progress.was_preempted for progress in queue]),
            queue[0].known_tokens if queue else 0,
            sum([progress.known_tokens for progress in queue]),
        )
        self._preemptions[engine.id] = engine.preemptions
        self._changed[engine.id] = None


def free_blocks_after(engine: Engine, steps: int) -> int:
    """Free blocks once so many steps of the pass in progress have run since the last report.

    What finished requests keep for one step more counts as free: how long is a matter of reports.
    """
    ledger = engine.ledger
    free = ledger.free_blocks
    if engine.ended:
        ended = tuple(engine.ended)
        free += sum([ledger.blocks_freed(ended[: count + 1]) for count in range(len(ended))])
    if not steps:
        return free
    more, residents = 0, steps
    if engine._chunks:  # prompts that are complete with its first step decode in the others
        residents -= not engine._decode_first
        for _, start, tokens in engine._chunks:
            stored = start + tokens
            more += ledger.blocks_for(stored + steps - 1) - ledger.blocks_for(stored)
    return free - ledger.blocks_of_steps(residents) - more
