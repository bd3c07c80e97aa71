"""What requests that wait would find stored, while a batcher puts a step together; nothing is changed by it.

The batcher asks for one request after the other, and tells which it admits. So what is looked up for the next
has in view what the step has taken so far: blocks from the head of the free queue, blocks out of its middle
that others found; and it finds blocks that the step is to compute (vLLM 0.19 notes them when it schedules).
"""

from collections.abc import Iterable
from typing import Protocol

from serving.engine.free_queue import Extent
from serving.engine.prefix_cache import PrefixCache, SharedPrefix, owners
from serving.vocabulary.actions import Chunk


class Waiting(Protocol):
    """A request that waits, as far as it matters here."""

    @property
    def id(self) -> int: ...

    @property
    def known_tokens(self) -> int: ...

    @property
    def shared_prefix(self) -> SharedPrefix: ...


class Memory(Protocol):
    """The ledger (``kv_ledger``): how many blocks are free before this step, what those who decode fill."""

    @property
    def free_blocks(self) -> int: ...

    def grow(self, request: int, decodes: bool) -> bool:
        """False when the request does not decode here."""


class Admissions:
    """Of one choice at a time. ``decodes``: the step is one of those who decode, too.

    ``growing``: a request found all that is there of what another generates at this moment, so it may find
    more after the next step.
    """

    __slots__ = ("_decodes", "_found", "_memory", "_new", "_taken", "_touched", "cache", "growing")

    def __init__(self, cache: PrefixCache, memory: Memory) -> None:
        self.cache = cache
        self._memory = memory
        self._decodes = True
        self._new: list[tuple[int, int, int]] = []  # owner, first block, end: what this step computes
        self._touched: set[Extent] = set()
        self._taken = 0
        self._found: list[tuple[Extent | None, int, int]] = []
        self.growing = False

    def begin(self, chunks: Iterable[Chunk], decodes: bool) -> None:
        """Another choice. ``chunks``: those of prompts under way."""
        self._decodes = decodes
        self._new.clear()
        if self._taken:
            self._touched.clear()
            self._taken = 0
        tables = self.cache.tables
        for request, start, tokens in chunks:
            table = tables.get(request)
            if table is not None:
                self._note(request, table.prefix, table.cached_blocks, start + tokens)

    def find(self, one: Waiting, free_blocks: int) -> tuple[int, int]:
        """(Tokens that are found, how many of their blocks are free now): whole blocks from the first on.

        ``free_blocks``: what is left of them in this step. The last position is always computed again: its
        output is the next token (vLLM, get_computed_blocks).
        """
        cache = self.cache
        if self._found:
            self._found = []
        self.growing = False
        if not one.shared_prefix and one.id not in cache.index:
            return 0, 0
        block, memory = cache.block_tokens, self._memory
        if not self._taken:
            cache.trim(memory.free_blocks)
        gone = self._gone(cache.queue.blocks - self._taken - free_blocks)
        whole, blocks = (one.known_tokens - 1) // block, 0
        for owner, start, stop in owners(one.id, one.shared_prefix, 0, whole, block):
            memory.grow(owner, self._decodes)
            blocks = self._pieces(owner, start, stop, gone)
            if blocks < stop:
                self.growing = memory.grow(owner, self._decodes)
                break
        free = sum([end - start for extent, start, end in self._found if self._is_free(extent)])
        return blocks * block, free

    def admit(self, one: Waiting, start: int, tokens: int) -> int:
        """The request that was last looked for begins at ``start``, with a chunk of ``tokens``.

        Returns how many of the blocks before ``start`` were free.
        """
        cache, before = self.cache, self._taken
        blocks = start // cache.block_tokens
        for extent, first, end in self._found:
            if extent is not None and first < blocks and self._is_free(extent):
                part = cache.cut_out(extent, first, min(end, blocks))
                self._touched.add(part)
                self._taken += part.stop - part.start
        if self._found:
            self._found = []
        self._note(one.id, one.shared_prefix, blocks, start + tokens)
        return self._taken - before

    def _note(self, request: int, prefix: SharedPrefix, blocks: int, tokens: int) -> None:
        block = self.cache.block_tokens
        if prefix:
            self._new += owners(request, prefix, blocks, tokens // block, block)
        else:
            self._new.append((request, blocks, tokens // block))

    def _is_free(self, extent: Extent | None) -> bool:
        return extent is not None and not extent.users and extent not in self._touched

    def _pieces(self, owner: int, at: int, stop: int, gone: dict[Extent, int]) -> int:
        """Add what is found of the owner's content from block ``at`` on; returns where that ends."""
        shelf = self.cache.index.get(owner, [])
        while at < stop:
            extent, end = self._best(shelf, at, gone)
            if extent is None:
                new = [last for one, first, last in self._new if one == owner and first <= at < last]
                if not new:
                    break
                end = at + 1
            end = min(end, stop)
            self._found.append((extent, at, end))
            at = end
        return at

    def _best(self, shelf: list[Extent], at: int, gone: dict[Extent, int]) -> tuple[Extent | None, int]:
        """As ``prefix_cache.best_copy``, of what this step leaves there."""
        best: Extent | None = None
        end = 0
        for extent in shelf:
            stop = gone.get(extent, extent.stop) if gone else extent.stop
            if extent.start > at:
                if best is None or extent.start >= end:
                    break
                if extent.born < best.born and stop > extent.start:
                    return best, extent.start
            elif at < stop and (best is None or extent.born < best.born):
                best, end = extent, stop
        return best, end

    def _gone(self, taken: int) -> dict[Extent, int]:
        """Extents that this step takes blocks of, from the head of the queue: where what is left ends."""
        gone: dict[Extent, int] = {}
        queue = self.cache.queue
        extent = queue.ends.behind
        while taken > 0 and extent is not queue.ends:
            if extent not in self._touched:
                left = max(extent.start, extent.stop - taken)
                taken -= extent.stop - left
                gone[extent] = left
            extent = extent.behind
        return gone
