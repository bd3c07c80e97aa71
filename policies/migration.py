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
        free = [one for one in view.taking if not view.engaged(one)]
        by_load = [(0, one) for one in view.loading if not view.engaged(one)]
        by_load = sorted([*by_load, *((view.load(one, "outstanding"), one) for one in free)])
        leaving = [one for one in view.leaving if not view.engaged(one)]
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
        found = [(view.context_tokens(one), -view.arrival_ns(one), -one) for one in view.decoding()]
        if not found:
            return None
        context, _, negative = min(found)
        return -negative, f"the shortest, {context} tokens"
