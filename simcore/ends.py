"""When the resident requests of one machine end, by its step counter."""

from collections.abc import Mapping
from heapq import heappop, heappush

from simcore.lifetime import Lifetime


class Ends:
    """A heap of (step counter, request). Entries that preemption has made void are skipped."""

    __slots__ = ("_lives", "heap")

    def __init__(self, lives: Mapping[int, Lifetime]) -> None:
        self._lives = lives
        self.heap: list[tuple[int, int]] = []

    def add(self, life: Lifetime) -> None:
        """Its ``end`` is known."""
        heappush(self.heap, (life.end, life.request.id))

    def next(self) -> int:
        """The step counter at which the next resident request has all its tokens."""
        heap, lives = self.heap, self._lives
        while True:
            end, request = heap[0]
            life = lives.get(request)
            if life is not None and life.end == end:
                return end
            heappop(heap)

    def due(self, steps_done: int) -> list[Lifetime]:
        """Take out who has ended by then."""
        heap, lives, found = self.heap, self._lives, list[Lifetime]()
        while heap and heap[0][0] <= steps_done:
            end, request = heappop(heap)
            life = lives.get(request)
            if life is not None and life.end == end:
                life.end = -1  # it may be there twice: taken out and back again before its next step
                found.append(life)
        return found
