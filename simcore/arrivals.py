"""Requests in order of arrival: at given times, or from clients that wait for their answers."""

from collections.abc import Collection, Iterator

from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.request import Request

Arrival = tuple[Request, int]


class Arrivals:
    """``closed``: whether the next arrival depends on ended requests. ``lives``: requests in flight."""

    __slots__ = ("_clients", "_lives", "_times", "closed")

    def __init__(self, requests: Requests, lives: Collection[int]) -> None:
        self._clients = requests if isinstance(requests, ClosedLoop) else None
        none: Iterator[Arrival] = iter(())
        self._times = none if isinstance(requests, ClosedLoop) else iter(requests)
        self._lives, self.closed = lives, self._clients is not None

    def take(self, now_ns: int) -> Arrival | None:
        """Take the next arrival; None if there is none or no client is free. The previous one has arrived."""
        if self._clients is None:
            return next(self._times, None)
        self._clients.in_flight(now_ns, len(self._lives))
        return self._clients.take()

    def look(self, now_ns: int, coming: Arrival | None) -> bool:
        """Check after requests ended; returns whether another arrival can be taken.

        ``coming``: the arrival that is pending or being reported; None if there is none. It is to be taken
        again if another client sends earlier.
        """
        if self._clients is None or coming is None:
            return coming is None
        self._clients.in_flight(now_ns, len(self._lives) + (coming[0].id not in self._lives))
        return self._clients.is_sooner(coming)
