"""Which KV blocks of a replica hold what, and who finds them: vLLM's block pool, by extents.

A full block is known by its content: (owner, number), the owner being the request in which that content
occurs first (``Request.shared_prefix``). A block can be found from the step on that is to compute its last
token (vLLM 0.19, kv_cache_manager.py:allocate_slots; under asynchronous scheduling one step later where a
generated token fills it, async_scheduler.py), while its request runs and after that, until its place in the
free queue comes. Two requests that compute the same keep a copy each; the older one is found.

Everything is kept by extents (``free_queue``) and brought up to date when it is asked for: what decode steps
have taken from the free queue is the difference between its length and the ledger's count of free blocks,
and what they have filled follows from a request's context.
"""

from collections.abc import Iterator

from serving.engine.free_queue import NOBODY, Extent, FreeQueue

SharedPrefix = tuple[tuple[int, int], ...]
# Blocks [2] to [3] of an extent [1], which hold ``owner`` [0]'s content.
Piece = tuple[int, Extent | None, int, int]


class BlockTable:
    """The blocks of one request that can be found: ``cached_blocks`` from its first, as extents in order.

    ``stops``: where the request's part of each extent ends; what was split off goes on at ``rest``.
    ``stored_tokens``: what can be found once its last step is known to be over. ``number``: in order of
    admission.
    """

    __slots__ = ("cached_blocks", "extents", "number", "prefix", "request", "stops", "stored_tokens")

    def __init__(self, request: int, prefix: SharedPrefix, number: int) -> None:
        self.request = request
        self.prefix = prefix
        self.number = number
        self.cached_blocks = 0
        self.stored_tokens = 0
        self.extents: list[Extent] = []
        self.stops: list[int] = []

    def parts(self) -> list[Extent]:
        """Its extents as they stand now."""
        if len(self.extents) == 1 and self.extents[0].stop == self.stops[0]:
            return self.extents
        found: list[Extent] = []
        for extent, stop in zip(self.extents, self.stops):
            found.append(extent)
            while extent.stop < stop:
                assert extent.rest is not extent, "an extent became shorter while it was held"
                extent = extent.rest
                found.append(extent)
        return found


def owners(
    request: int, prefix: SharedPrefix, start: int, stop: int, block_tokens: int
) -> Iterator[tuple[int, int, int]]:
    """Whose content the full blocks [start, stop) of a request are: (owner, first block, end).

    A block is the owner's of its last position: with it all before are settled.
    """
    for owner, end_tokens in prefix:
        end = min(stop, end_tokens // block_tokens)
        if start < end:
            yield owner, start, end
            start = end
    if start < stop:
        yield request, start, stop


class PrefixCache:
    """Extents by owner, block tables by request, the free queue.

    ``shared_blocks``: how often blocks are held beyond once. ``queried_tokens`` and ``hit_tokens``: of
    requests at their first admission. ``evicted_blocks``: were taken although they could be found, up to the
    last ``trim``.
    """

    __slots__ = (
        "_admitted", "_born", "block_tokens", "evicted_blocks", "hit_tokens", "index", "queried_tokens",
        "queue", "shared_blocks", "tables",
    )  # fmt: skip

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.queue = FreeQueue(blocks)
        self.index: dict[int, list[Extent]] = {}  # each by ``start``
        self.tables: dict[int, BlockTable] = {}
        self.shared_blocks = 0
        self.queried_tokens, self.hit_tokens, self.evicted_blocks = 0, 0, 0
        self._admitted, self._born = 0, 0

    def trim(self, free_blocks: int) -> None:
        """So many blocks are free: those beyond were taken, from the head of the queue."""
        queue = self.queue
        taken = queue.blocks - free_blocks
        while taken > 0:
            extent = queue.ends.behind
            blocks = extent.stop - extent.start
            if blocks > taken:
                extent.stop -= taken
                queue.blocks -= taken
                blocks = taken
            else:
                queue.remove(extent)
                if extent.owner != NOBODY:
                    self._unindex(extent)
            if extent.owner != NOBODY:
                self.evicted_blocks += blocks
            taken -= blocks

    def find(self, owner: int, start: int, stop: int) -> Iterator[tuple[Extent, int, int]]:
        """Blocks [start, stop) of the owner's content, without a gap: (extent, first block, end)."""
        shelf = self.index.get(owner)
        while shelf is not None and start < stop:
            extent, end = best_copy(shelf, start)
            if extent is None:
                return
            end = min(end, stop)
            yield extent, start, end
            start = end

    def reach(self, owner: int, start: int, stop: int) -> int:
        """Where the blocks found of [start, stop) end."""
        for _, _, end in self.find(owner, start, stop):
            start = end
        return start

    def admit(self, request: int, prefix: SharedPrefix, blocks: int) -> int:
        """The request begins behind ``blocks`` that are found; returns how many of them others hold."""
        self._admitted += 1
        table = self.tables[request] = BlockTable(request, prefix, self._admitted)
        if not blocks:
            return 0
        held = 0
        for owner, start, stop in owners(request, prefix, 0, blocks, self.block_tokens):
            for extent, first, end in list(self.find(owner, start, stop)):
                part = self.cut_out(extent, first, end)
                if part.users:
                    held += end - first
                else:
                    self.queue.remove(part)
                part.users += 1
                table.extents.append(part)
                table.stops.append(end)
                table.cached_blocks = end
        assert table.cached_blocks == blocks, "a request begins behind blocks that are not stored"
        table.stored_tokens = blocks * self.block_tokens
        self.shared_blocks += held
        return held

    def store(self, table: BlockTable, blocks: int) -> None:
        """The request's first ``blocks`` are full and can be found."""
        if blocks <= table.cached_blocks:
            return
        if not table.prefix:
            self._insert(table, table.request, table.cached_blocks, blocks)
            table.cached_blocks = blocks
            return
        for owner, start, stop in owners(
            table.request, table.prefix, table.cached_blocks, blocks, self.block_tokens
        ):
            self._insert(table, owner, start, stop)
        table.cached_blocks = blocks

    def release(self, table: BlockTable, held_blocks: int) -> int:
        """The request leaves its blocks, the last ones first; returns how many others still hold."""
        del self.tables[table.request]
        still = 0
        blank = held_blocks - table.cached_blocks
        if blank:
            self.leave_blank(blank)
        for extent in reversed(table.parts()):
            extent.users -= 1
            if extent.users:
                still += extent.stop - extent.start
            else:
                self._queue_up(extent)
        self.shared_blocks -= still
        return still

    def leave_blank(self, blocks: int) -> None:
        """Blocks are free whose content nobody knows."""
        queue = self.queue
        last = queue.ends.ahead
        if last.owner == NOBODY and last is not queue.ends:
            last.stop += blocks
            queue.blocks += blocks
        else:
            queue.append(Extent(NOBODY, 0, blocks, 0, 0))

    def forget(self) -> None:
        """Nothing is found any more in free blocks."""
        extent = self.queue.ends.behind
        while extent is not self.queue.ends:
            if extent.owner != NOBODY:
                self._unindex(extent)
            extent = extent.behind
        self.queue = FreeQueue(self.queue.blocks)

    def cut_out(self, extent: Extent, start: int, stop: int) -> Extent:
        """The part [start, stop) as an extent of its own."""
        if start > extent.start:
            extent = self._split(extent, start)
        if stop < extent.stop:
            self._split(extent, stop)
        return extent

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cut in two at block ``at``; returns the second part."""
        second = Extent(extent.owner, at, extent.stop, extent.users, extent.born)
        if not extent.users:
            self.queue.insert(second, extent)
            self.queue.blocks -= second.stop - at
        second.rest, extent.rest = extent.rest, second
        extent.stop = at
        self._shelve(self.index[extent.owner], second)
        return second

    def _insert(self, table: BlockTable, owner: int, start: int, stop: int) -> None:
        shelf = self.index.get(owner)
        if shelf is not None and table.extents:
            last = table.extents[-1]
            while last.stop < table.stops[-1]:
                last = last.rest
            # Who alone holds an extent makes it longer, unless a copy of what follows is there already.
            if last.owner == owner and last.stop == start and last.users == 1 and _is_furthest(shelf, last):
                last.stop = table.stops[-1] = stop
                return
        self._born += 1
        extent = Extent(owner, start, stop, 1, self._born)
        table.extents.append(extent)
        table.stops.append(stop)
        if shelf is None:
            self.index[owner] = [extent]
        else:
            self._shelve(shelf, extent)

    def _shelve(self, shelf: list[Extent], extent: Extent) -> None:
        at = len(shelf)
        while at and shelf[at - 1].start > extent.start:
            at -= 1
        shelf.insert(at, extent)

    def _unindex(self, extent: Extent) -> None:
        shelf = self.index[extent.owner]
        if len(shelf) == 1:
            del self.index[extent.owner]
        else:
            shelf.remove(extent)

    def _queue_up(self, extent: Extent) -> None:
        """To the end of the queue, as one with the blocks queued just before it if it goes on with them."""
        queue = self.queue
        last = queue.ends.ahead
        if last.owner == extent.owner and last.start == extent.stop and last is not queue.ends:
            shelf = self.index[extent.owner]
            if not _has_copies(shelf, extent.start, last.stop):
                queue.remove(last)
                self._unindex(last)
                extent.stop = last.stop
        extent.rest = extent
        queue.append(extent)


def best_copy(shelf: list[Extent], at: int) -> tuple[Extent | None, int]:
    """The oldest extent that holds block ``at``, and up to where no older one begins."""
    best: Extent | None = None
    end = 0
    for extent in shelf:
        if extent.start > at:
            if best is None or extent.start >= end:
                break
            if extent.born < best.born:
                return best, extent.start
        elif at < extent.stop and (best is None or extent.born < best.born):
            best, end = extent, extent.stop
    return best, end


def _is_furthest(shelf: list[Extent], extent: Extent) -> bool:
    return all(other is extent or other.stop <= extent.stop for other in shelf)


def _has_copies(shelf: list[Extent], start: int, stop: int) -> bool:
    """Whether blocks [start, stop) are there more than once."""
    inside = [one for one in shelf if one.start < stop and one.stop > start]
    return sum([min(one.stop, stop) - max(one.start, start) for one in inside]) > stop - start
