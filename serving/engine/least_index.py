"""Finds the least loaded member of a group without looking at every member."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


class LeastIndex:
    """Members ordered by an integer load. Ties go to the lowest id.

    Each load has a bit mask of its members, and a heap has all loads. A load without members is dropped when
    it reaches the top of the heap, or when the heap has grown to several times the group.
    """

    __slots__ = ("_heap", "_limit", "_masks")

    def __init__(self, loads: Mapping[int, int]) -> None:
        self._masks: dict[int, int] = {}
        for member, load in loads.items():
            self._masks[load] = self._masks.get(load, 0) | 1 << member
        self._heap = list(self._masks)
        heapify(self._heap)
        self._limit = 4 * len(loads) + 64

    def move(self, member: int, old: int, new: int) -> None:
        """Change a member's load from ``old`` to ``new``."""
        masks, bit = self._masks, 1 << member
        masks[old] ^= bit
        mask = masks.get(new)
        if mask is None:
            masks[new] = bit
            heappush(self._heap, new)
            if len(self._heap) > self._limit:
                self._rebuild()
        else:
            masks[new] = mask | bit

    def add(self, member: int, load: int) -> None:
        """Add a member to the group."""
        mask = self._masks.get(load)
        if mask is None:
            self._masks[load] = 1 << member
            heappush(self._heap, load)
        else:
            self._masks[load] = mask | 1 << member

    def remove(self, member: int, load: int) -> None:
        """Remove a member with this load from the group."""
        self._masks[load] ^= 1 << member

    def least(self) -> tuple[int, int]:
        """(member, load) of the least load; IndexError if the group is empty."""
        heap, masks = self._heap, self._masks
        while True:
            load = heap[0]
            mask = masks[load]
            if mask:
                return (mask & -mask).bit_length() - 1, load
            del masks[heappop(heap)]

    def _rebuild(self) -> None:
        self._masks = {load: mask for load, mask in self._masks.items() if mask}
        self._heap = list(self._masks)
        heapify(self._heap)
