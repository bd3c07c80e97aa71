"""Move requests between decode instances so that a waiting completed prompt finds room in one of them."""

from collections.abc import Mapping, Sequence

from serving.protocols.migration import InstancesView, Pair, SourceView


class Defragment:
    """Move one request if only all decode instances together have room for the first completed prompt.

    The smallest request that makes enough room on its instance moves, to the fullest instance that can take
    it. If no single request is enough, the largest one leaves the instance with the most room. Instances that
    take no more requests come first: their requests go wherever there is room.
    """

    for_head = True

    def __init__(self) -> None:
        self._chosen: dict[int, tuple[int, str]] = {}

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """One pair for each instance that takes no more requests, and one for the waiting prompt."""
        free = {
            replica: view.kv_tokens(replica) - view.load(replica, "kv_demand")
            for replica in view.taking
            if not view.engaged(replica)
        }
        pairs = list[Pair]()
        for source in view.leaving:
            victim = None if view.engaged(source) else largest(view.kv_demands(source), free, source)
            if victim is not None:
                pairs.append(self._pair(source, victim, "takes no requests"))
                free.pop(victim[2])
        head = view.head_tokens
        if head and not any(room >= head for room in free.values()) and sum(free.values()) >= head:
            found_at = self._room_for(head, view, free)
            if found_at is not None:
                source, victim = found_at
                pairs.append(
                    self._pair(source, victim, f"a completed prompt waits for {head} tokens of room")
                )
        return pairs

    def _room_for(
        self, head: int, view: InstancesView, free: Mapping[int, int]
    ) -> tuple[int, tuple[int, int, int]] | None:
        """(source, (tokens, request, destination)); None if no request can move anywhere."""
        single = list[tuple[int, int, int, int, int]]()
        for source, room in free.items():
            for request, tokens in view.kv_demands(source).items():
                if room + tokens < head:
                    continue
                there = [
                    (free[replica], replica)
                    for replica in free
                    if replica != source and free[replica] >= tokens
                ]
                if there:
                    left, destination = min(there)
                    single.append((tokens, left, source, request, destination))
        if single:
            tokens, _, source, request, destination = min(single)
            return source, (tokens, request, destination)
        source = max(free, key=lambda replica: (free[replica], -replica))
        victim = largest(view.kv_demands(source), free, source)
        return None if victim is None else (source, victim)

    def _pair(self, source: int, victim: tuple[int, int, int], why: str) -> Pair:
        tokens, request, destination = victim
        self._chosen[source] = request, f"{tokens} tokens of room"
        return Pair(source, destination, f"{source} {why}" if why.startswith("takes") else why)

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The request chosen when the instances were paired, if it still decodes."""
        chosen = self._chosen.pop(view.replica, None)
        return chosen if chosen is not None and chosen[0] in set(view.decoding()) else None


def largest(demands: Mapping[int, int], free: Mapping[int, int], source: int) -> tuple[int, int, int] | None:
    """(tokens, request, destination): the largest request that fits, to the fullest instance with room."""
    for tokens, request in sorted([(tokens, demand) for demand, tokens in demands.items()], reverse=True):
        there = [(room, replica) for replica, room in free.items() if replica != source and room >= tokens]
        if there:
            return tokens, request, min(there)[1]
    return None
