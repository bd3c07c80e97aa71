"""Looks up what waiting requests would find stored while a batcher composes a step; changes nothing.

The batcher asks for one request after the other, and says which it admits. So the next look-up accounts for
what the step has taken so far: blocks from the head of the free queue, and found blocks from its middle. It
also finds blocks that the step is to compute (vLLM 0.19 records them when it schedules).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from serving.engine.block_copies import Computed, Piece
from serving.engine.block_table import BlockTable, owner_of
from serving.engine.free_queue import Extent, SharedPrefix
from serving.engine.prefix_cache import PrefixCache
from serving.vocabulary.actions import Chunk


class Waiting(Protocol):
    """A waiting request: the attributes used here."""

    @property
    def id(self) -> int: ...

    @property
    def known_tokens(self) -> int: ...

    @property
    def shared_prefix(self) -> SharedPrefix: ...

    @property
    def was_preempted(self) -> bool: ...


class Memory(Protocol):
    """The ledger (``kv_ledger``): blocks free before this step, and tokens that requests have filled."""

    @property
    def free_blocks(self) -> int: ...

    def step_blocks(self) -> int:
        """Blocks that the next decode step takes."""

    def filled_tokens(self, table: BlockTable, decodes: bool) -> int: ...

    def decodes(self, request: int) -> bool: ...


class Admissions:
    """Look-ups of one choice at a time. ``decodes``: decoding requests take part in the step.

    ``growing``: a request found all there is of what another request is generating, so it may find more after
    the next step. ``admitted``: for each admitted request, the blocks that it found, if any.
    """

    __slots__ = (
        "_decodes", "_found", "_memory", "_new", "_taken", "_touched", "admitted", "cache", "growing",
    )  # fmt: skip

    def __init__(self, cache: PrefixCache, memory: Memory) -> None:
        self.cache = cache
        self._memory = memory
        self._decodes = True
        self._new: list[Computed] = []
        self._touched: set[Extent] = set()
        self._taken = 0
        self._found: list[Piece] = []
        self.admitted: dict[int, list[Piece]] = {}
        self.growing = False

    def begin(self, chunks: Iterable[Chunk], decodes: bool) -> None:
        """Begin another choice. ``chunks``: the chunks of prompts in progress."""
        self._decodes = decodes
        if self._new:
            self._new = []
        if self.admitted:
            self.admitted = {}
        if self._taken:
            self._touched.clear()
            self._taken = 0
        tables, block = self.cache.tables, self.cache.block_tokens
        for request, start, tokens in chunks:
            table = tables.get(request)
            if table is not None:
                self._new.append((request, table.prefix, table.cached_blocks, (start + tokens) // block))

    def find(self, progress: Waiting, free_blocks: int) -> tuple[int, int]:
        """(Tokens found, how many of their blocks are free now): whole blocks from the first on.

        ``free_blocks``: blocks left in this step. The last position is always recomputed: its output is the
        next token (vLLM, get_computed_blocks).
        """
        cache, prefix = self.cache, progress.shared_prefix
        self.growing = False
        if not prefix and progress.id not in cache.index:
            return 0, 0
        block, memory = cache.block_tokens, self._memory
        if not self._taken:
            free = memory.free_blocks
            if cache.queue.blocks > free:
                cache.trim(free)
        taken = cache.queue.blocks - self._taken - free_blocks
        gone = self._evicted_extents(taken) if taken > 0 else None
        whole = (progress.known_tokens - 1) // block
        if prefix:
            self.note_filled(prefix, self._decodes)
        self._found = pieces = cache.find(progress.id, prefix, whole, gone, self._new)
        blocks = pieces[-1][2] if pieces else 0
        if blocks < whole:
            owner = owner_of(progress.id, prefix, blocks, block)
            self.growing = owner in cache.tables and memory.decodes(owner)
        free, touched = 0, self._touched
        for extent, start, end in pieces:
            if extent is not None and not extent.users and extent not in touched:
                free += end - start
        return blocks * block, free

    def admit(self, progress: Waiting, start: int, tokens: int) -> int:
        """Admit the request last looked up: it begins at ``start`` with a chunk of ``tokens``.

        Returns how many of the blocks before ``start`` were free.
        """
        cache, before = self.cache, self._taken
        blocks = start // cache.block_tokens
        if blocks:
            self.admitted[progress.id] = self._found
            for extent, first, end in self._found:
                if extent is not None and not extent.users:
                    self._touch(extent, first, min(end, blocks))
        self._new.append(
            (progress.id, progress.shared_prefix, blocks, (start + tokens) // cache.block_tokens)
        )
        return self._taken - before

    def note_filled(self, prefix: SharedPrefix, decodes: bool) -> None:
        """Make blocks of the prefix's owners findable if they are here.

        ``decodes``: decoding requests take part in the step being composed.
        """
        cache, tables = self.cache, self.cache.tables
        for owner, _ in prefix:
            table = tables.get(owner)
            if table is not None:
                cache.store(table, self._memory.filled_tokens(table, decodes))

    def note_copies(self, prefix: SharedPrefix) -> None:
        """Before shared tokens are stored again: the owners' copies come first, if they are here."""
        self.note_filled(prefix, True)
        for owner, _ in prefix:
            table = self.cache.tables.get(owner)
            if table is not None:
                table.copied = True

    def found(self, request: int, prefix: SharedPrefix, blocks: int, decodes: bool) -> Sequence[Piece]:
        """The blocks after which a request begins, as found when the step was composed.

        They are looked up again if that was not done, or if the step computes some of them.
        """
        lookup = self.admitted.get(request)
        if lookup is not None and not [1 for extent, _, _ in lookup if extent is None]:
            return lookup
        memory = self._memory
        self.cache.trim(memory.free_blocks - (memory.step_blocks() if decodes else 0))
        self.note_filled(prefix, decodes)
        return self.cache.find(request, prefix, blocks)

    def _touch(self, extent: Extent, at: int, stop: int) -> None:
        """Mark blocks that leave the free queue once the step is chosen."""
        while at < stop:
            extent = extent.part_from(at)
            if not extent.users and extent not in self._touched:
                extent = self.cache.cut_out(extent, at, stop)
                self._touched.add(extent)
                self._taken += extent.stop - at
            at = extent.stop

    def _evicted_extents(self, taken: int) -> dict[Extent, int]:
        """Extents that lose blocks to this step from the head of the queue, each with its new end."""
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
