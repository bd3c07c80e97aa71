"""The least loaded member of a group, without looking at every member."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


class LeastIndex:
    """An order over somebody else's loads. Ties go to the lowest id.

    A lazy heap: a change pushes an entry, entries that no longer tell the truth are dropped when they
    surface, and the heap is rebuilt when it has grown to several times the group.
    """

    __slots__ = ("_heap", "_limit", "_loads")

    def __init__(self, loads: Mapping[int, int]) -> None:
        self._loads = loads
        self._limit = 4 * len(loads) + 64
        self._rebuild()

    def changed(self, member: int) -> None:
        """The member's load is not what it was."""
        if len(self._heap) >= self._limit:
            self._rebuild()
        else:
            heappush(self._heap, (self._loads[member], member))

    def least(self) -> int:
        """The member with the least load; IndexError when the group is empty."""
        heap, loads = self._heap, self._loads
        while True:
            load, member = heap[0]
            if loads.get(member) == load:
                return member
            heappop(heap)

    def _rebuild(self) -> None:
        self._heap = [(load, member) for member, load in self._loads.items()]
        heapify(self._heap)
