"""Which KV blocks of a replica hold what, and who finds them: vLLM's block pool, by extents.

A full block is known by its content: (owner, number), the owner being the request in which that content
occurs first (``Request.shared_prefix``). A block can be found from the step on that is to compute its last
token (vLLM 0.19, kv_cache_manager.py:allocate_slots; under asynchronous scheduling one step later where a
generated token fills it, async_scheduler.py), while its request runs and after that, until its place in the
free queue comes. Two requests that compute the same keep a copy each; the older one is found.

Everything is kept by extents (``free_queue``) and brought up to date when it is asked for: what decode steps
have taken from the free queue is the difference between its length and the ledger's count of free blocks,
and what a request has filled of its own is noted when somebody names it, or when it leaves. An extent goes
on over the content of several owners; it is indexed by the first, and how much of it another request finds
follows from what both say their tokens are (``common_tokens``).
"""

from collections.abc import Sequence

from serving.engine.free_queue import NOBODY, Extent, FreeQueue, SharedPrefix, blank

# Blocks [1] to [2] of an extent [0]; None: the step that is put together computes them.
Piece = tuple[Extent | None, int, int]
# Of a request [0] with its prefix [1]: blocks [2] to [3].
Computed = tuple[int, SharedPrefix, int, int]
ALL_TOKENS = 1 << 60


class BlockTable:
    """The blocks of one request that can be found: ``cached_blocks`` from its first, as extents in order.

    ``prefix_tokens``: how many of its first tokens are others'. ``stops``: where the request's part of each
    extent ends; what was split off goes on at ``rest``.
    ``stored_tokens``: what can be found, or could if somebody named the request. ``findable_tokens``: what
    another request may ever look for. ``late_tokens``: of these the last ones cannot be found before the
    request has left. ``copied``: since this one came another stored some of its tokens.
    """

    __slots__ = (
        "cached_blocks", "copied", "extents", "findable_tokens", "late_tokens", "prefix", "prefix_tokens",
        "request", "stops", "stored_tokens",
    )  # fmt: skip

    def __init__(self, request: int, prefix: SharedPrefix, findable_tokens: int) -> None:
        self.request = request
        self.prefix = prefix
        self.prefix_tokens = prefix[-1][1] if prefix else 0
        self.findable_tokens = findable_tokens
        self.cached_blocks = 0
        self.stored_tokens = 0
        self.late_tokens = 0
        self.copied = False
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


def owner_of(request: int, prefix: SharedPrefix, block: int, block_tokens: int) -> int:
    """Whose content a full block of a request is: its last position settles all before it, too."""
    last = block * block_tokens + block_tokens
    for owner, end in prefix:
        if last <= end:
            return owner
    return request


def common_tokens(request: int, prefix: SharedPrefix, other: int, its_prefix: SharedPrefix) -> int:
    """How many of their first tokens two requests have in common."""
    if request == other:
        return ALL_TOKENS
    parts = min(len(prefix), len(its_prefix))
    if prefix[:parts] != its_prefix[:parts]:
        return _common_of_parts(prefix, its_prefix)
    if len(prefix) > parts:
        owner, end = prefix[parts]
        if owner == other:
            return end
    elif len(its_prefix) > parts:
        owner, end = its_prefix[parts]
        if owner == request:
            return end
    return prefix[parts - 1][1] if parts else 0


def _common_of_parts(prefix: SharedPrefix, its_prefix: SharedPrefix) -> int:
    common = 0
    for (owner, end), (its_owner, its_end) in zip(prefix, its_prefix):
        if owner != its_owner:
            break
        common = min(end, its_end)
        if end != its_end:
            break
    return common


class PrefixCache:
    """Extents by owner, block tables by request, the free queue.

    ``shared_blocks``: how often blocks are held beyond once. ``queried_tokens`` and ``hit_tokens``: of
    requests at their first admission. ``evicted_blocks``: were taken although another request of the run may
    look for them, up to the last ``trim``.
    """

    __slots__ = (
        "_born", "block_tokens", "evicted_blocks", "hit_tokens", "index", "queried_tokens", "queue",
        "shared_blocks", "tables",
    )  # fmt: skip

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.queue = FreeQueue(blocks)
        self.index: dict[int, list[Extent]] = {}  # each by ``start``
        self.tables: dict[int, BlockTable] = {}
        self.shared_blocks = 0
        self.queried_tokens, self.hit_tokens, self.evicted_blocks = 0, 0, 0
        self._born = 0

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

    def find(
        self,
        request: int,
        prefix: SharedPrefix,
        stop: int,
        gone: dict[Extent, int] | None = None,
        computed: Sequence[Computed] = (),
    ) -> list[Piece]:
        """Blocks [0, stop) of the request's tokens, as far as they are here without a gap.

        ``gone``: where extents end that lose blocks in this step. ``computed``: what this step computes.
        """
        found: list[Piece] = []
        copies: list[tuple[Extent, int]] = []
        at, block = 0, self.block_tokens
        for owner, end_tokens in prefix:
            end = end_tokens // block
            if end <= at:
                continue
            end = min(end, stop)
            self._add_copies(copies, owner, request, prefix, stop, gone)
            if not (copies or computed):
                return found
            at = _add_pieces(found, copies, at, end, request, prefix, block, computed)
            if at < end or at == stop:
                return found
        if at < stop:
            self._add_copies(copies, request, request, prefix, stop, gone)
            _add_pieces(found, copies, at, stop, request, prefix, block, computed)
        return found

    def _add_copies(
        self,
        copies: list[tuple[Extent, int]],
        owner: int,
        request: int,
        prefix: SharedPrefix,
        stop: int,
        gone: dict[Extent, int] | None,
    ) -> None:
        """Extents that begin with content of the owner, and where their use to the request ends."""
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
        found: Sequence[Piece],
    ) -> int:
        """The request begins behind ``blocks`` that were found; returns how many of them others hold."""
        table = self.tables[request] = BlockTable(request, prefix, findable_tokens)
        if not blocks:
            return 0
        held = 0
        for piece, at, end in found:
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
                table.copied |= part.request == request  # others may have gone on since it was preempted
            table.cached_blocks = at
        assert table.cached_blocks == blocks, "a request begins behind blocks that are not stored"
        table.stored_tokens = blocks * self.block_tokens
        self.shared_blocks += held
        return held

    def store(self, table: BlockTable, tokens: int) -> None:
        """The full blocks of a request's first ``tokens`` can be found, as far as anybody looks for them."""
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
        extent = Extent(owner, table.request, table.prefix, start, stop, 1, self._born)
        table.extents.append(extent)
        table.stops.append(stop)
        self._shelve(extent)

    def _lengthen(self, table: BlockTable, start: int, stop: int) -> bool:
        """Who alone holds an extent makes it longer, unless a copy of what follows may be there already."""
        last = table.extents[-1]
        while last.stop < table.stops[-1]:
            last = last.rest
        mine = last.request == table.request and last.stop == start and last.users == 1
        if not mine or table.copied or (start + 1) * self.block_tokens <= table.prefix_tokens:
            return False
        last.stop = table.stops[-1] = stop
        return True

    def release(self, table: BlockTable, held_blocks: int) -> int:
        """The request leaves its blocks, the last ones first; returns how many others still hold."""
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

    def leave_blank(self, blocks: int) -> None:
        """Blocks are free whose content nobody looks for."""
        queue = self.queue
        last = queue.ends.ahead
        if last.owner == NOBODY and last is not queue.ends:
            last.stop += blocks
            queue.blocks += blocks
        else:
            queue.append(blank(blocks))

    def forget(self) -> None:
        """Nothing is found any more in free blocks."""
        extent = self.queue.ends.behind
        while extent is not self.queue.ends:
            if extent.owner != NOBODY:
                self._unindex(extent)
            extent = extent.behind
        self.queue = FreeQueue(self.queue.blocks)

    def cut_out(self, extent: Extent, start: int, stop: int) -> Extent:
        """The part from block ``start`` as an extent of its own, to ``stop`` or where it was cut before."""
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
        second = Extent(owner, request, prefix, at, extent.stop, extent.users, extent.born)
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
        """To the end of the queue, as one with the part queued just before it if both were one before."""
        queue = self.queue
        last = queue.ends.ahead
        if last.born == extent.born and last.start == extent.stop and last is not queue.ends:
            queue.remove(last)
            self._unindex(last)
            extent.stop = last.stop
        extent.rest = extent
        queue.append(extent)


def _add_pieces(
    found: list[Piece],
    copies: Sequence[tuple[Extent, int]],
    at: int,
    stop: int,
    request: int,
    prefix: SharedPrefix,
    block_tokens: int,
    computed: Sequence[Computed],
) -> int:
    """Add what is there of blocks [at, stop) without a gap; returns where that ends."""
    while at < stop:
        best: Extent | None = None
        if len(copies) == 1:
            only, until = copies[0]
            if only.start <= at < until:
                best = only
        else:
            best, until = best_copy(copies, at)
        if best is None:
            if not _is_computed(request, prefix, at, block_tokens, computed):
                break
            until = at + 1
        until = min(until, stop)
        found.append((best, at, until))
        at = until
    return at


def best_copy(copies: Sequence[tuple[Extent, int]], at: int) -> tuple[Extent | None, int]:
    """The oldest extent that has block ``at``, and up to where no older one begins.

    copies: (extent, end of what is found of it).
    """
    best: Extent | None = None
    until = 0
    for extent, end in copies:
        if extent.start <= at < end and (best is None or extent.born < best.born):
            best, until = extent, end
    if best is not None:
        for extent, _ in copies:
            if at < extent.start < until and extent.born < best.born:
                until = extent.start
    return best, until


def _is_computed(
    request: int, prefix: SharedPrefix, at: int, block_tokens: int, computed: Sequence[Computed]
) -> bool:
    """Whether the step that is put together computes block ``at`` of a request's tokens."""
    for other, its_prefix, first, end in computed:
        if first <= at < end:
            common = common_tokens(request, prefix, other, its_prefix)
            if at < common // block_tokens:
                return True
    return False
