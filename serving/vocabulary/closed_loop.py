"""Closed-loop clients, which wait for their answers: the load follows how fast requests are served.

Drivers take requests as (request, true output tokens). In an open loop each request arrives at its own time;
in a closed loop it arrives when a client has nothing in flight.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from serving.vocabulary.request import Request


class ClosedLoop:
    """One client per time of ``starts_ns`` sends its first request then; they take ``requests`` in order.

    Each client sends its next request ``think_ns`` after its last one has ended, served or not. The driver
    reports ended requests (``in_flight``), and calls ``take`` while it knows of no request still to arrive.
    """

    def __init__(
        self, requests: Iterable[tuple[Request, int]], starts_ns: Sequence[int], think_ns: int = 0
    ) -> None:
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._think_ns = think_ns
        self._free_ns = list(starts_ns)  # when each idle client sends next: a heap
        heapify(self._free_ns)
        self._given = 0  # requests that were taken and have not ended
        self._returned: tuple[Request, int] | None = None

    def in_flight(self, now_ns: int, requests: int) -> None:
        """Report that this many of the taken requests have not ended, as of now."""
        for _ in range(self._given - requests):
            heappush(self._free_ns, now_ns + self._think_ns)
        self._given = requests

    def take(self) -> tuple[Request, int] | None:
        """The next request, with its arrival time; None: no client is free, or no requests are left."""
        if not self._free_ns:
            return None
        arrival = self._returned or next(self._requests, None)
        if arrival is None:
            return None
        self._returned = None
        self._given += 1
        request, output_tokens = arrival
        return replace(request, arrival_ns=heappop(self._free_ns)), output_tokens

    def is_sooner(self, coming: tuple[Request, int]) -> bool:
        """Whether another client sends before this taken request arrives; ``take`` then gives it again.

        A client may be through with its first request while others have not begun.
        """
        arrival_ns = coming[0].arrival_ns
        if not self._free_ns or self._free_ns[0] >= arrival_ns:
            return False
        heappush(self._free_ns, arrival_ns)
        self._given -= 1
        self._returned = coming
        return True


# The requests that a driver gets.
Requests = Iterable[tuple[Request, int]] | ClosedLoop
