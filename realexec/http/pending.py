"""Tokens that have come and that the controller was not told of yet, by the replica that has the request."""

from dataclasses import dataclass, field

from serving.vocabulary.events import Streamed


@dataclass(slots=True)
class _OfReplica:
    """``since_ns``: of the oldest; ``urgent``: a first token or an end is among it."""

    tokens: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    since_ns: int = 0
    urgent: bool = False


class Pending:
    """First tokens and ends are told at once, all others together once per ``period_ns``."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._of: dict[int, _OfReplica] = {}

    def add(self, replica: int, request: int, tokens: int, first: bool, now_ns: int) -> None:
        """Tokens of a request have come."""
        one = self._of.get(replica)
        if one is None:
            one = self._of[replica] = _OfReplica(since_ns=now_ns)
        one.tokens[request] = one.tokens.get(request, 0) + tokens
        one.urgent |= first

    def finish(self, replica: int, request: int, now_ns: int) -> None:
        """Its last has come."""
        self.add(replica, request, 0, True, now_ns)
        self._of[replica].finished.add(request)

    def move(self, request: int, source: int, target: int, now_ns: int) -> bool:
        """The controller takes it for another's now; returns whether it is over in truth."""
        one = self._of.get(source)
        if one is None or request not in one.tokens:
            return False
        tokens, over = one.tokens.pop(request), request in one.finished
        one.finished.discard(request)
        self.add(target, request, tokens, over, now_ns)
        if over:
            self._of[target].finished.add(request)
        return over

    def forget(self, replica: int, request: int) -> None:
        """The controller has given it up."""
        one = self._of.get(replica)
        if one is not None:
            one.tokens.pop(request, None)
            one.finished.discard(request)

    def due_ns(self) -> int | None:
        """When the next is to be told; None: nothing is there."""
        found = [0 if one.urgent else one.since_ns + self._period_ns for one in self._of.values()]
        return min(found, default=None)

    def take(self, now_ns: int) -> Streamed | None:
        """What is to be told by now, of one replica."""
        for replica, one in sorted(self._of.items()):
            if one.urgent or one.since_ns + self._period_ns <= now_ns:
                return self.flush(replica)
        return None

    def flush(self, replica: int) -> Streamed | None:
        """All of a replica, due or not."""
        one = self._of.pop(replica, None)
        if one is None or not one.tokens:
            return None
        return Streamed(replica, tuple(sorted(one.tokens.items())), tuple(sorted(one.finished)))

    def __len__(self) -> int:
        return sum(len(one.tokens) for one in self._of.values())
