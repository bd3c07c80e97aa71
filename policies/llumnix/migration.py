"""Llumnix's migration: pairs instances short of memory with free ones; one request of each pair moves."""

from collections.abc import Sequence
from math import ceil, inf
from typing import Final

from policies.llumnix.freeness import migration_rule
from policies.llumnix.freest_first import Entry, FreestFirst
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import InstancesView, Pair, SourceView

_SOME: Final = 1024  # free blocks, to see how freeness falls with them


class Llumnix:
    """Pair the least free instance with the freest, the second least free with the second freest, and so on.

    Sources are below ``migrate_out_threshold`` (``shipped``: blocks per request, ``paper``: iterations) and,
    as shipped, also every instance with a preempted request that waits; destinations are above it. An
    instance that takes no more requests is a source before all others. ``defragment``: waiting requests
    count. ``rounds``: instances are paired in every such round, as shipped once in four reports of each. As
    shipped a pair is dropped if one of the two is in a migration already. The request that arrived last
    leaves (shipped), or the shortest of those with the lowest priority (paper, section 4.4).

    ``high_priority_target_tokens``: how much an instance with high-priority requests should hold at most.
    Memory above it counts as used there; as shipped no request leaves an instance on which only
    high-priority requests decode. None: all requests are treated alike.
    """

    reads_load_reports = True

    def __init__(
        self,
        rule: str = "shipped",
        migrate_out_threshold: float = 3.0,
        defragment: bool = True,
        rounds: int = 4,
        high_priority_target_tokens: int | None = None,
    ) -> None:
        if not -inf < migrate_out_threshold < inf:
            raise ValueError(f"migrate_out_threshold must be finite, not {migrate_out_threshold}")
        if rounds < 1:
            raise ValueError(f"rounds must be at least 1, not {rounds}")
        self._freeness = migration_rule(rule, defragment, high_priority_target_tokens)
        self._by_priority = high_priority_target_tokens is not None
        self._shipped, self._threshold, self.rounds = rule == "shipped", migrate_out_threshold, rounds
        self._orders: dict[str, FreestFirst] = {}

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Pair least free with freest, reading only instances that may be short and as many of the freest."""
        if view.round % self.rounds:
            return ()
        leaving = view.leaving
        sources = self._sources(view, leaving)
        if all(view.engaged(source) for _, source in sources):
            return ()
        order = self._orders.get(view.model)
        if order is None:
            order = self._orders[view.model] = FreestFirst(self._freeness)

        def takes(entry: Entry) -> bool:
            other = entry[1] in leaving or self._is_source(entry[2], -entry[0])
            return not other and self._considered(view, entry[1])

        destinations = [entry[:2] for entry in order.freest(view, len(sources), self._threshold, takes)]
        # A loading instance is the destination of a source for which no other is left.
        destinations += [(inf, replica) for replica in view.loading if self._considered(view, replica)]
        return [
            Pair(source, destination, f"freeness {free:.1f} against {_freeness_text(-minus_free)}")
            for (free, source), (minus_free, destination) in zip(sorted(sources), destinations)
            if not (view.engaged(source) or view.engaged(destination))
        ]

    def _sources(self, view: InstancesView, leaving: Sequence[int]) -> list[tuple[float, int]]:
        """(freeness, instance) of those short of memory, and of ``leaving``, which take no more requests."""
        entries = [(-inf, replica) for replica in leaving if self._considered(view, replica)]
        for replica in view.short():
            report = None if replica in leaving else view.report(replica)
            if report is None:
                continue
            free = self._freeness(report)
            if self._is_source(report, free) and self._considered(view, replica):
                entries.append((free, replica))
        return entries

    def _considered(self, view: InstancesView, instance: int) -> bool:
        """As shipped true for every instance; a pair with an instance in a migration is dropped later."""
        return self._shipped or not view.engaged(instance)

    def _is_source(self, report: LoadReport, free: float) -> bool:
        return free < self._threshold or (self._shipped and report.preempted > 0)

    def ample_blocks(self, report: LoadReport) -> int:
        """The free blocks from which an instance with this report is not a source."""
        if self._shipped and report.preempted:
            return report.total_blocks + 1
        # The blocks at which its freeness crosses the threshold, plus one. Rules are linear in free blocks.
        none, some = [self._freeness(report._replace(free_blocks=free)) for free in (0, _SOME)]
        return 0 if none == inf else ceil((self._threshold - none) * _SOME / (some - none)) + 1

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The request that leaves and why; None if no suitable request decodes."""
        decoding = list(view.decoding())
        if not decoding:
            return None
        lowest = min(map(view.priority, decoding)) if self._by_priority else 0
        if self._shipped:
            # Scheduler.get_migrating_seq_groups (LCFS) searches for a request of normal priority that
            # decodes. If it finds one, it returns running[-1], the newest request, whatever its priority.
            return None if lowest > 0 else (max(decoding, key=view.arrival_ns), "the newest")
        if self._by_priority:
            decoding = [request for request in decoding if view.priority(request) == lowest]
        context, chosen = min((view.context_tokens(request), request) for request in decoding)
        return chosen, f"the shortest, {context} tokens"


def _freeness_text(free: float) -> str:
    return "one that still loads" if free == -inf else f"{free:.1f}"
