"""Clients that wait for their answers: in a closed loop the load follows how fast requests are served.

Drivers take requests as (request, true output tokens). Of an open loop each arrives at its own time; of a
closed one it arrives when a client has nothing in flight.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from serving.vocabulary.request import Request


class ClosedLoop:
    """``clients`` of them take turns at ``requests``, which are sent in their order.

    Each sends its next request ``think_ns`` after its last one has ended, served or not. A driver tells when
    (``in_flight``), and asks for the next one (``take``) while none that it knows of is still to arrive.
    """

    def __init__(self, requests: Iterable[tuple[Request, int]], clients: int, think_ns: int = 0) -> None:
        self._requests: Iterator[tuple[Request, int]] = iter(requests)
        self._think_ns = think_ns
        self._free_ns = deque([0] * clients)  # when a client sends, of those that wait for nothing; ascending
        self._given = 0  # requests that were given and have not ended

    def in_flight(self, now_ns: int, requests: int) -> None:
        """So many requests of those that were given have not ended, as of now."""
        for _ in range(self._given - requests):
            self._free_ns.append(now_ns + self._think_ns)
        self._given = requests

    def take(self) -> tuple[Request, int] | None:
        """The next request, with its arrival; None: no client is free, or there are no more."""
        if not self._free_ns:
            return None
        found = next(self._requests, None)
        if found is None:
            return None
        self._given += 1
        request, output_tokens = found
        return replace(request, arrival_ns=self._free_ns.popleft()), output_tokens


# What drivers are given.
Requests = Iterable[tuple[Request, int]] | ClosedLoop
