"""Requests in the order in which they arrive: at times of their own, or as clients have had their answers."""

from collections.abc import Collection, Iterator

from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.request import Request

Arrival = tuple[Request, int]


class Arrivals:
    """``closed``: whether the next one depends on which have ended. ``lives``: requests in flight."""

    __slots__ = ("_clients", "_lives", "_times", "closed")

    def __init__(self, requests: Requests, lives: Collection[int]) -> None:
        self._clients = requests if isinstance(requests, ClosedLoop) else None
        none: Iterator[Arrival] = iter(())
        self._times = none if isinstance(requests, ClosedLoop) else iter(requests)
        self._lives, self.closed = lives, self._clients is not None

    def take(self, now_ns: int) -> Arrival | None:
        """The next; None: there are no more, or no client is free. The one before it has arrived."""
        if self._clients is None:
            return next(self._times, None)
        self._clients.in_flight(now_ns, len(self._lives))
        return self._clients.take()

    def look(self, now_ns: int, coming: Arrival | None) -> bool:
        """Requests may have ended; whether another can be taken.

        ``coming``: the one that is still to arrive, or is being told of; None: there is none.
        """
        if self._clients is not None and coming is not None:
            self._clients.in_flight(now_ns, len(self._lives) + (coming[0].id not in self._lives))
        return coming is None
