"""The largest context among the resident requests of one machine.

All contexts grow by one per step, so their order stands still: a request with context c at step counter s is
kept under c - s. Who has left is found out when it comes up.
"""

from collections.abc import Mapping
from heapq import heappop, heappush

from simcore.lifetime import Lifetime


class Peaks:
    """A heap of (s - c, step counter of the request's end, request)."""

    __slots__ = ("_heap", "_lives")

    def __init__(self, lives: Mapping[int, Lifetime]) -> None:
        self._lives = lives
        self._heap: list[tuple[int, int, int]] = []

    def join(self, life: Lifetime) -> None:
        """A request decodes from the next step on; its ``end`` is known."""
        request = life.request
        heappush(self._heap, (life.end - request.prompt_tokens - life.output_tokens, life.end, request.id))

    def largest(self, steps_done: int) -> int:
        """The largest context, the token that the next step feeds included; 0 when nobody decodes."""
        heap, lives = self._heap, self._lives
        while heap:
            offset, end, request = heap[0]
            life = lives.get(request)
            if life is not None and life.end == end:
                return steps_done - offset
            heappop(heap)
        return 0
