"""What the KV blocks of a replica contain, and which requests find them: vLLM's block pool, by extents.

A full block is identified by its content: (owner, number). The owner is the request in which that content
occurs first (``Request.shared_prefix``). A block can be found from the step on that is to compute its last
token (vLLM 0.19, kv_cache_manager.py:allocate_slots; under asynchronous scheduling one step later if a
generated token fills it, async_scheduler.py). It can be found while its request runs and after that, until
its place in the free queue is reached. Two requests that compute the same content keep a copy each; the older
one is found.

Blocks are kept as extents (``free_queue``) and updated only when they are read. What decode steps have taken
from the free queue is the difference between its length and the ledger's count of free blocks. What a request
has filled itself is recorded when another request names it, or when it leaves. An extent may span the content
of several owners; it is indexed by the first. How much of it another request finds follows from the tokens of
both (``common_tokens``).
"""

from collections.abc import Sequence

from serving.engine.block_copies import Computed, Piece, add_pieces
from serving.engine.block_table import BlockTable, common_tokens, owner_of
from serving.engine.free_queue import NOBODY, Extent, FreeQueue, SharedPrefix, blank


class PrefixCache:
    """Extents by owner, block tables by request, and the free queue.

    ``shared_blocks``: how often blocks are held beyond once. ``queried_tokens`` and ``hit_tokens``: of
    requests at their first admission. ``evicted_blocks``: taken although another request of the run may look
    for them, up to the last ``trim``.
    """

    __slots__ = (
        "_born", "block_tokens", "evicted_blocks", "hit_tokens", "index", "queried_tokens", "queue",
        "shared_blocks", "tables",
    )  # fmt: skip

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.queue = FreeQueue(blocks)
        self.index: dict[int, list[Extent]] = {}  # each sorted by ``start``
        self.tables: dict[int, BlockTable] = {}
        self.shared_blocks = 0
        self.queried_tokens, self.hit_tokens, self.evicted_blocks = 0, 0, 0
        self._born = 0

    def trim(self, free_blocks: int) -> None:
        """Remove taken blocks from the head of the queue, so that ``free_blocks`` remain."""
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

    def find(
        self,
        request: int,
        prefix: SharedPrefix,
        stop: int,
        gone: dict[Extent, int] | None = None,
        computed: Sequence[Computed] = (),
    ) -> list[Piece]:
        """Blocks [0, stop) of the request's tokens, up to the first gap.

        ``gone``: where extents end that lose blocks in this step. ``computed``: what this step computes.
        """
        pieces: list[Piece] = []
        copies: list[tuple[Extent, int]] = []
        at, block = 0, self.block_tokens
        for owner, end_tokens in prefix:
            end = end_tokens // block
            if end <= at:
                continue
            end = min(end, stop)
            self._add_copies(copies, owner=owner, request=request, prefix=prefix, stop=stop, gone=gone)
            if not (copies or computed):
                return pieces
            at = add_pieces(
                pieces,
                copies,
                at=at,
                stop=end,
                request=request,
                prefix=prefix,
                block_tokens=block,
                computed=computed,
            )
            if at < end or at == stop:
                return pieces
        if at < stop:
            self._add_copies(copies, owner=request, request=request, prefix=prefix, stop=stop, gone=gone)
            add_pieces(
                pieces,
                copies,
                at=at,
                stop=stop,
                request=request,
                prefix=prefix,
                block_tokens=block,
                computed=computed,
            )
        return pieces

    def _add_copies(
        self,
        copies: list[tuple[Extent, int]],
        *,
        owner: int,
        request: int,
        prefix: SharedPrefix,
        stop: int,
        gone: dict[Extent, int] | None,
    ) -> None:
        """Add extents that begin with the owner's content, each with the end of what the request can use."""
        shelf = self.index.get(owner)
        if shelf is None:
            return
        for extent in shelf:
            end = extent.stop if gone is None else gone.get(extent, extent.stop)
            common = common_tokens(request, prefix, extent.request, extent.prefix) // self.block_tokens
            end = min(end, common, stop)
            if end > extent.start:
                copies.append((extent, end))

    def admit(
        self,
        request: int,
        prefix: SharedPrefix,
        blocks: int,
        findable_tokens: int,
        pieces: Sequence[Piece],
    ) -> int:
        """Begin a request after ``blocks`` found blocks; returns how many of them other requests hold."""
        table = self.tables[request] = BlockTable(request, prefix, findable_tokens)
        if not blocks:
            return 0
        held = 0
        for piece, at, end in pieces:
            end = min(end, blocks)
            while at < end:
                assert piece is not None
                part = self.cut_out(piece, at, end)
                if part.users:
                    held += part.stop - at
                else:
                    self.queue.remove(part)
                part.users += 1
                at = part.stop
                table.extents.append(part)
                table.stops.append(at)
                table.copied |= part.request == request  # others may have stored more since it was preempted
            table.cached_blocks = at
        assert table.cached_blocks == blocks, "a request begins behind blocks that are not stored"
        table.stored_tokens = blocks * self.block_tokens
        self.shared_blocks += held
        return held

    def store(self, table: BlockTable, tokens: int) -> None:
        """Make the full blocks of a request's first ``tokens`` findable, if others may look for them."""
        start, stop = table.cached_blocks, min(tokens, table.findable_tokens) // self.block_tokens
        if start >= stop:
            return
        table.cached_blocks = stop
        if table.extents and self._lengthen(table, start, stop):
            return
        owner = table.request
        if (start + 1) * self.block_tokens <= table.prefix_tokens:
            owner = owner_of(owner, table.prefix, start, self.block_tokens)
        self._born += 1
        extent = Extent(owner, table.request, table.prefix, start=start, stop=stop, users=1, born=self._born)
        table.extents.append(extent)
        table.stops.append(stop)
        self._shelve(extent)

    def _lengthen(self, table: BlockTable, start: int, stop: int) -> bool:
        """Lengthen the last extent if only this request holds it and no copy of what follows may exist."""
        last = table.extents[-1]
        while last.stop < table.stops[-1]:
            last = last.rest
        mine = last.request == table.request and last.stop == start and last.users == 1
        if not mine or table.copied or (start + 1) * self.block_tokens <= table.prefix_tokens:
            return False
        last.stop = table.stops[-1] = stop
        return True

    def release(self, table: BlockTable, held_blocks: int) -> int:
        """Release the request's blocks, the last ones first; returns how many others still hold."""
        del self.tables[table.request]
        still = 0
        unknown = held_blocks - table.cached_blocks
        if unknown:
            self.leave_blank(unknown)
        for extent in reversed(table.parts()):
            extent.users -= 1
            if extent.users:
                still += extent.stop - extent.start
            else:
                self._queue_up(extent)
        self.shared_blocks -= still
        return still

    def begin(self, free_blocks: int) -> None:
        """Start tracking: no block could be found so far, so all free blocks are blank."""
        assert not self.index, "blocks that can be found are forgotten"
        self.queue = FreeQueue(free_blocks)

    def leave_blank(self, blocks: int) -> None:
        """Free blocks whose content no request looks for."""
        if not blocks:
            return
        queue = self.queue
        last = queue.ends.ahead
        if last.owner == NOBODY and last is not queue.ends:
            last.stop += blocks
            queue.blocks += blocks
        else:
            queue.append(blank(blocks))

    def forget(self) -> None:
        """Make all free blocks blank: none is found any more."""
        extent = self.queue.ends.behind
        while extent is not self.queue.ends:
            if extent.owner != NOBODY:
                self._unindex(extent)
            extent = extent.behind
        self.queue = FreeQueue(self.queue.blocks)

    def cut_out(self, extent: Extent, start: int, stop: int) -> Extent:
        """Cut out the part from block ``start`` to ``stop``, or to where it was cut before."""
        extent = extent.part_from(start)
        if start > extent.start:
            extent = self._split(extent, start)
        if stop < extent.stop:
            self._split(extent, stop)
        return extent

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cut in two at block ``at``; returns the second part."""
        request, prefix = extent.request, extent.prefix
        owner = owner_of(request, prefix, at, self.block_tokens)
        second = Extent(
            owner, request, prefix, start=at, stop=extent.stop, users=extent.users, born=extent.born
        )
        if not extent.users:
            self.queue.insert(second, extent)
            self.queue.blocks -= second.stop - at
        second.rest, extent.rest = extent.rest, second
        extent.stop = at
        self._shelve(second)
        return second

    def _shelve(self, extent: Extent) -> None:
        shelf = self.index.get(extent.owner)
        if shelf is None:
            self.index[extent.owner] = [extent]
            return
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
        """Queue an extent last; join it with the part queued just before if both were one extent."""
        queue = self.queue
        last = queue.ends.ahead
        if last.born == extent.born and last.start == extent.stop and last is not queue.ends:
            queue.remove(last)
            self._unindex(last)
            extent.stop = last.stop
        extent.rest = extent
        queue.append(extent)
