"""The least loaded member of a group, without looking at every member."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace


class LeastIndex:
    """An order over somebody else's loads. Ties go to the lowest id.

    A lazy heap. A load that grew leaves an entry that is too low, which is put right when it surfaces; a load
    that shrank is pushed, and what is too high is dropped when it surfaces. So every member always has an
    entry that is right or too low. The heap is rebuilt when it has grown to several times the group.
    """

    __slots__ = ("_heap", "_limit", "_loads")

    def __init__(self, loads: Mapping[int, int]) -> None:
        self._loads = loads
        self._limit = 4 * len(loads) + 64
        self._rebuild()

    def shrank(self, member: int) -> None:
        """The member's load is less than it was."""
        heap = self._heap
        if len(heap) >= self._limit:
            self._rebuild()
        else:
            heappush(heap, (self._loads[member], member))

    def least(self) -> int:
        """The member with the least load; IndexError when the group is empty."""
        heap, loads = self._heap, self._loads
        while True:
            noted, member = heap[0]
            load = loads.get(member)
            if load == noted:
                return member
            if load is None or load < noted:
                heappop(heap)
            else:
                heapreplace(heap, (load, member))

    def _rebuild(self) -> None:
        self._heap = [(load, member) for member, load in self._loads.items()]
        heapify(self._heap)
