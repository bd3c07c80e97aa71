"""Closed-loop clients, which wait for their answers: the load follows how fast requests are served.

Drivers take requests as (request, true output tokens). In an open loop each request arrives at its own time;
in a closed loop it arrives when a client has nothing in flight.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from serving.vocabulary.request import Request


class ClosedLoop:
    """``clients`` clients send ``requests`` in order.

    Each client sends its next request ``think_ns`` after its last one has ended, served or not. The driver
    reports ended requests (``in_flight``), and calls ``take`` while it knows of no request still to arrive.
    """

    def __init__(self, requests: Iterable[tuple[Request, int]], clients: int, think_ns: int = 0) -> None:
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._think_ns = think_ns
        self._free_ns = deque([0] * clients)  # when each idle client sends next; ascending
        self._given = 0  # requests that were taken and have not ended

    def in_flight(self, now_ns: int, requests: int) -> None:
        """Report that this many of the taken requests have not ended, as of now."""
        for _ in range(self._given - requests):
            self._free_ns.append(now_ns + self._think_ns)
        self._given = requests

    def take(self) -> tuple[Request, int] | None:
        """The next request, with its arrival time; None: no client is free, or no requests are left."""
        if not self._free_ns:
            return None
        found = next(self._requests, None)
        if found is None:
            return None
        self._given += 1
        request, output_tokens = found
        return replace(request, arrival_ns=self._free_ns.popleft()), output_tokens


# The requests that a driver gets.
Requests = Iterable[tuple[Request, int]] | ClosedLoop
