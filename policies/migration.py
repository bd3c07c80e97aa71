"""Migration policies: which running requests move to another instance."""

from collections.abc import Sequence

from serving.protocols.migration import InstancesView, Pair, SourceView


class LeastLoadedPairs:
    """The instance with the most requests sends its shortest decoding request to the one with the fewest.

    An instance that takes no more requests is a source before all others. A loading instance counts as having
    no requests. ``least_gap``: in requests, below which a pair is left alone; with at least 2 no request
    moves back and forth.
    """

    def __init__(self, least_gap: int = 2) -> None:
        if least_gap < 2:
            raise ValueError("least_gap must be at least 2 requests")
        self._least_gap = least_gap

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Pair the fullest with the emptiest, the second fullest with the second emptiest, and so on."""
        free = [replica for replica in view.taking if not view.engaged(replica)]
        by_load = [(0, replica) for replica in view.loading if not view.engaged(replica)]
        by_load = sorted([*by_load, *((view.load(replica, "outstanding"), replica) for replica in free)])
        leaving = [replica for replica in view.leaving if not view.engaged(replica)]
        targets, pairs = by_load[: len(leaving)], list[Pair]()
        for source, (load, destination) in zip(leaving, targets):
            pairs.append(Pair(source, destination, f"{source} takes no requests, {destination} has {load}"))
        rest = by_load[len(targets) :]
        for (most, source), (fewest, destination) in zip(rest[::-1], rest):
            if most - fewest < self._least_gap:
                break
            pairs.append(Pair(source, destination, f"{most} requests against {fewest}"))
        return pairs

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The shortest request; on a tie the last to arrive."""
        options = [
            (view.context_tokens(request), -view.arrival_ns(request), -request) for request in view.decoding()
        ]
        if not options:
            return None
        context, _, negative = min(options)
        return -negative, f"the shortest, {context} tokens"
