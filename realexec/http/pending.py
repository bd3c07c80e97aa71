"""Tokens that arrived but are not reported to the controller yet, by the replica that has the request."""

from dataclasses import dataclass, field

from serving.vocabulary.events import Streamed


@dataclass(slots=True)
class _OfReplica:
    """``since_ns``: when the oldest token arrived; ``urgent``: a first token or an end is included."""

    tokens: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    since_ns: int = 0
    urgent: bool = False


class Pending:
    """First tokens and ends are reported at once, all other tokens together once per ``period_ns``."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._of: dict[int, _OfReplica] = {}

    def add(self, replica: int, request: int, tokens: int, first: bool, now_ns: int) -> None:
        """Add tokens of a request that have arrived."""
        one = self._of.get(replica)
        if one is None:
            one = self._of[replica] = _OfReplica(since_ns=now_ns)
        one.tokens[request] = one.tokens.get(request, 0) + tokens
        one.urgent |= first

    def finish(self, replica: int, request: int, now_ns: int) -> None:
        """Record that a request's last token has arrived."""
        self.add(replica, request, 0, True, now_ns)
        self._of[replica].finished.add(request)

    def move(self, request: int, source: int, target: int, now_ns: int) -> bool:
        """Move a request that the controller has moved; return whether it has in fact finished."""
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
        """Drop a request that the controller has given up."""
        one = self._of.get(replica)
        if one is not None:
            one.tokens.pop(request, None)
            one.finished.discard(request)

    def due_ns(self) -> int | None:
        """Return when the next report is due; None if there is nothing to report."""
        found = [0 if one.urgent else one.since_ns + self._period_ns for one in self._of.values()]
        return min(found, default=None)

    def take(self, now_ns: int) -> Streamed | None:
        """Return a report that is due by now, of one replica; None if none is."""
        for replica, one in sorted(self._of.items()):
            if one.urgent or one.since_ns + self._period_ns <= now_ns:
                return self.flush(replica)
        return None

    def flush(self, replica: int) -> Streamed | None:
        """Return the report of a replica, due or not."""
        one = self._of.pop(replica, None)
        if one is None or not one.tokens:
            return None
        return Streamed(replica, tuple(sorted(one.tokens.items())), tuple(sorted(one.finished)))

    def __len__(self) -> int:
        return sum(len(one.tokens) for one in self._of.values())
