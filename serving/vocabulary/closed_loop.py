"""Closed-loop clients, which wait for their answers: the load follows how fast requests are served.

Drivers take requests as (request, true output tokens). In an open loop each request arrives at its own time;
in a closed loop it arrives when a client has nothing in flight.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Protocol

from serving.vocabulary.request import Request


class Door(Protocol):
    """What stands between clients and the engines: a request takes time to come in, a token to go out."""

    def enter(self, request: Request, sent_ns: int) -> int:
        """Return when a request that a client sends at ``sent_ns`` arrives."""

    def undo(self) -> None:
        """Take back the last ``enter``."""

    def way_out_ns(self, decoding: int) -> int:
        """Return how long a token takes to its client while ``decoding`` requests have not ended."""


class ClosedLoop:
    """One client per time of ``starts_ns`` sends its first request then; they take ``requests`` in order.

    Each client sends its next request ``think_ns`` after its last one has ended, served or not. The driver
    reports ended requests (``in_flight``), and calls ``take`` while it knows of no request still to arrive.
    ``door``: what delays requests and answers; None: nothing does. ``warmup``: so many first requests warm
    the servers up: all clients begin with them at once, think between them, and send no others until the
    client of the last one has its answer. The times of ``starts_ns`` count from then.
    """

    def __init__(
        self,
        requests: Iterable[tuple[Request, int]],
        starts_ns: Sequence[int],
        think_ns: int = 0,
        door: Door | None = None,
        warmup: int = 0,
    ) -> None:
        self._door = door
        self._starts_ns, self._warmup = starts_ns, warmup  # warm-up requests that were not taken yet
        self._is_warm = not warmup
        self._warm_ns = 0  # when the last answer to a warm-up request so far was with its client
        self._sent_ns = self._arrival_ns = 0  # of the last taken request
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._think_ns = think_ns
        self._free_ns = (
            [0] * len(starts_ns) if warmup else list(starts_ns)
        )  # when each idle client sends next: a heap
        heapify(self._free_ns)
        self._given = 0  # requests that were taken and have not ended
        self._returned: tuple[Request, int] | None = None

    def in_flight(self, now_ns: int, requests: int) -> None:
        """Report that this many of the taken requests have not ended, as of now."""
        out_ns = 0 if self._door is None else self._door.way_out_ns(self._given)
        for _ in range(self._given - requests):
            heappush(self._free_ns, now_ns + out_ns + self._think_ns)
        if not self._is_warm and requests < self._given:
            self._warm_up(now_ns + out_ns, requests)
        self._given = requests

    def freed(self, now_ns: int) -> None:
        """A client is through with its request, in place of ``in_flight``: it thinks, then sends the next."""
        self._given -= 1
        heappush(self._free_ns, now_ns + self._think_ns)

    def _warm_up(self, answered_ns: int, left: int) -> None:
        """Warm-up requests have been answered and ``left`` have not: after the last one clients begin."""
        self._warm_ns = max(self._warm_ns, answered_ns)
        if left or self._warmup:
            return
        self._is_warm = True
        self._free_ns = [self._warm_ns + start_ns for start_ns in self._starts_ns]
        heapify(self._free_ns)

    def take(self) -> tuple[Request, int] | None:
        """The next request, with its arrival time; None: no client is free, or no requests are left."""
        if not self._free_ns or not (self._warmup or self._is_warm):
            return None
        arrival = self._returned or next(self._requests, None)
        if arrival is None:
            return None
        self._returned = None
        self._given += 1
        if self._warmup:
            self._warmup -= 1
        request, output_tokens = arrival
        self._sent_ns = heappop(self._free_ns)
        if self._door is None:
            return replace(request, arrival_ns=self._sent_ns), output_tokens
        # A request that overtakes an earlier one at the door arrives with it.
        self._arrival_ns = max(self._arrival_ns, self._door.enter(request, self._sent_ns))
        return replace(request, arrival_ns=self._arrival_ns), output_tokens

    def is_sooner(self, coming: tuple[Request, int]) -> bool:
        """Whether another client sends before this taken request arrives; ``take`` then gives it again.

        A client may be through with its first request while others have not begun.
        """
        if not self._free_ns or self._free_ns[0] >= self._sent_ns:
            return False
        heappush(self._free_ns, self._sent_ns)
        if self._door is not None:
            self._door.undo()
        self._given -= 1
        if not self._is_warm:
            self._warmup += 1
        self._returned = coming
        return True


# The requests that a driver gets.
Requests = Iterable[tuple[Request, int]] | ClosedLoop
