"""The queue of free KV blocks, first in first out, counted instead of listed.

A block that is given back keeps what it holds until it is handed out again. So a preempted request finds the
beginning of its KV still there when it is admitted again soon: its blocks were queued last one first, and
those behind in the queue are still whole. Used when prefix caching is on (vLLM v1, block_pool.py: free blocks
are appended, taken from the front, and taken out of the middle when a request finds its own).
"""


class _Span:
    """The blocks one request left in the queue."""

    __slots__ = ("ahead_kept", "first", "full_blocks", "held_blocks")

    def __init__(self, first: int, held_blocks: int, full_blocks: int, ahead_kept: int) -> None:
        self.first = first  # blocks given back before its own, ever
        self.held_blocks = held_blocks
        self.full_blocks = full_blocks
        self.ahead_kept = ahead_kept  # blocks before its own that left the queue by being found again


class FreeQueue:
    """Counts blocks given back and found again; what is handed out follows from how many are free."""

    __slots__ = ("_kept", "_returned", "_spans")

    def __init__(self) -> None:
        self._returned = 0  # blocks given back, ever
        self._kept = 0
        self._spans: dict[int, _Span] = {}

    def give_back(self, blocks: int) -> None:
        """Blocks whose content no request will look for."""
        self._returned += blocks

    def leave(self, request: int, held_blocks: int, full_blocks: int) -> None:
        """A preempted request's blocks; ``full_blocks`` of them, from the first, can be found again."""
        self._spans[request] = _Span(self._returned, held_blocks, full_blocks, self._kept)
        self._returned += held_blocks

    def remembers(self, request: int) -> bool:
        """Whether the request has left blocks here."""
        return request in self._spans

    def left_blocks(
        self, request: int, free_blocks: int, resumed: list[tuple[int, int]] | tuple[()] = ()
    ) -> int:
        """Blocks of the request that would be found when ``free_blocks`` are free.

        ``resumed``: (request, blocks found) decided earlier in the same step and not yet applied.
        """
        span = self._spans.get(request)
        if span is None:
            return 0
        kept, ahead = self._kept, span.ahead_kept
        for other, blocks in resumed:
            kept += blocks
            if self._spans[other].first < span.first:
                ahead += blocks
        handed_out = self._returned - kept - free_blocks + ahead - span.first
        return max(0, min(span.full_blocks, span.held_blocks - handed_out))

    def find(self, request: int, blocks: int) -> None:
        """The request takes ``blocks`` of its own out of the queue, and forgets the rest."""
        first = self._spans.pop(request).first
        self._kept += blocks
        for span in self._spans.values():
            if span.first > first:
                span.ahead_kept += blocks

    def forget(self, request: int) -> None:
        """The request will not come back for its blocks."""
        self._spans.pop(request, None)
