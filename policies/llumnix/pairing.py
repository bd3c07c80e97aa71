"""Who is paired with whom: the least free instance with the freest, the second least free with the second.

Compiled (``nativecore.modules``), as each round asks it; the policy is in ``policies.llumnix.migration``.
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import Final

from policies.llumnix.freeness import Rule
from policies.llumnix.freest_first import Entry, FreestFirst
from serving.protocols.load_report import LoadReport, with_free_blocks
from serving.protocols.migration import InstancesView, Pair

_SOME: Final = 1024  # free blocks, to see how freeness falls with them


class Pairing:
    """``rule``: an instance's freeness. Sources are below ``threshold``, destinations above it.

    ``shipped``: as in the artefact, an instance with a preempted request that waits is a source, too, and
    instances in a migration are considered, but their pairs are dropped.
    """

    __slots__ = ("_orders", "_rule", "_shipped", "_threshold")

    def __init__(self, rule: Rule, threshold: float, shipped: bool) -> None:
        self._rule, self._threshold, self._shipped = rule, threshold, shipped
        self._orders: dict[str, FreestFirst] = {}

    def pairs(self, view: InstancesView) -> Sequence[Pair]:
        """The pairs of this round; reads only instances that may be short and as many of the freest."""
        leaving = view.leaving
        sources = self._sources(view, leaving)
        if all(view.engaged(source) for _, source in sources):
            return ()
        order = self._orders.get(view.model)
        if order is None:
            order = self._orders[view.model] = FreestFirst(self._rule)

        def takes(entry: Entry) -> bool:
            other = entry[1] in leaving or self.is_source(entry[2], -entry[0])
            return not other and self._considered(view, entry[1])

        freest = order.freest(view, len(sources), self._threshold, takes)
        destinations = [(minus_free, replica) for minus_free, replica, _ in freest]
        # A loading instance is the destination of a source for which no other is left.
        destinations += [(inf, replica) for replica in view.loading if self._considered(view, replica)]
        sources.sort()
        return [
            Pair(source, destination, f"freeness {free:.1f} against {_freeness_text(-minus_free)}")
            for (free, source), (minus_free, destination) in zip(sources, destinations)
            if not (view.engaged(source) or view.engaged(destination))
        ]

    def ample_blocks(self, report: LoadReport) -> int:
        """The free blocks from which an instance with this report is not a source."""
        if self._shipped and report.preempted:
            return report.total_blocks + 1
        # The blocks at which its freeness crosses the threshold, plus one. Rules are linear in free blocks.
        none, some = [self._rule(with_free_blocks(report, free)) for free in (0, _SOME)]
        return 0 if none == inf else ceil((self._threshold - none) * _SOME / (some - none)) + 1

    def is_source(self, report: LoadReport, free: float) -> bool:
        """Whether an instance with this report and freeness is short of memory."""
        return free < self._threshold or (self._shipped and report.preempted > 0)

    def _sources(self, view: InstancesView, leaving: Sequence[int]) -> list[tuple[float, int]]:
        """(freeness, instance) of those short of memory, and of ``leaving``, which take no more requests."""
        entries = [(-inf, replica) for replica in leaving if self._considered(view, replica)]
        rule = self._rule
        for replica in view.short():
            report = None if replica in leaving else view.report(replica)
            if report is None:
                continue
            free = rule(report)
            if self.is_source(report, free) and self._considered(view, replica):
                entries.append((free, replica))
        return entries

    def _considered(self, view: InstancesView, instance: int) -> bool:
        """As shipped true for every instance; a pair with an instance in a migration is dropped later."""
        return self._shipped or not view.engaged(instance)


def _freeness_text(free: float) -> str:
    return "one that still loads" if free == -inf else f"{free:.1f}"
