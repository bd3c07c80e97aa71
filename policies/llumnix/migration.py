"""Llumnix's migration: pairs instances short of memory with free ones; one request of each pair moves."""

from collections.abc import Sequence
from math import inf

from policies.llumnix.freeness import migration_rule
from policies.llumnix.pairing import Pairing
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import InstancesView, Pair, SourceView


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
        self._shipped, self.rounds = rule == "shipped", rounds
        self._pairing = Pairing(self._freeness, migrate_out_threshold, self._shipped)

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Pair least free with freest, in every ``rounds``-th round."""
        return () if view.round % self.rounds else self._pairing.pairs(view)

    def ample_blocks(self, report: LoadReport) -> int:
        """The free blocks from which an instance with this report is not a source."""
        return self._pairing.ample_blocks(report)

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
