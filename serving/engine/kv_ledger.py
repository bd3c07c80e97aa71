"""The paged KV memory of one replica, kept in O(1) per run instead of O(1) per token.

A step counter ages all decoding requests at once: a request that joined with context c at counter s stores
``base = c - s`` and has context ``base + steps_done`` from then on. Context counts the token that the next
step feeds, so a request stores base + steps_done - 1 positions. Let base - 1 be
``block * base_blocks - phase`` with phase in 0..block-1. Then the request holds
``base_blocks + ceil((steps_done - phase) / block)`` blocks, and takes a new one in steps whose counter is
``phase`` modulo the block size. So a histogram of the phases gives the blocks of all requests, now and after
any number of steps.

A request also holds ``sequence_blocks`` blocks from its first reservation until it gives its memory back: its
windows and the states of its linear layers, as vLLM's hybrid KV cache manager holds their pages. They are in
``base_blocks``, so no step costs more. A whole window is held from the first token on.

The ledger counts blocks, not their content. ``cache`` (``prefix_cache.PrefixCache``) tracks the content; it
is None if prefix caching is off. The ledger reports to it requests that are admitted after found blocks
(``admit``), computed prompts (``reserve``), and requests that leave (``release``, ``preempt``). A block that
several requests hold is counted once: ``_reserved`` is smaller by what is held beyond once.
"""

from collections.abc import Iterable

from serving.engine.admissions import Admissions, Waiting
from serving.engine.block_table import ALL_TOKENS, BlockTable
from serving.engine.free_queue import Extent
from serving.engine.prefix_cache import PrefixCache
from serving.vocabulary.actions import Chunk
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


class KvLedger:
    """Blocks held per request; ``watermark_blocks`` stay free when a new request is admitted.

    With ``prefix_caching`` a request finds blocks with the beginning of its tokens, computed by any request.
    ``late_tokens``: the last generated token of decoding requests is unknown when a step is chosen
    (asynchronous scheduling), so a block is found this much later. ``named``: for each request, whether
    another request of the run names its tokens (a request beyond its end: no); None: unknown. Tokens that no
    request looks for are not tracked, except those that preempted requests find when they return.
    """

    __slots__ = (
        "_admissions", "_base_blocks", "_bases", "_counted_at", "_decoding_blocks", "_held", "_late_tokens",
        "_named", "_phases", "_reserved", "_tables", "block_tokens", "cache", "decoding", "sequence_blocks",
        "steps_done", "total_blocks", "tracks", "watermark_blocks",
    )  # fmt: skip

    def __init__(
        self,
        total_blocks: int,
        block_tokens: int,
        *,
        watermark_blocks: int = 0,
        sequence_blocks: int = 0,
        prefix_caching: bool = False,
        late_tokens: int = 0,
        named: bytes | None = None,
    ) -> None:
        if total_blocks < 1 or block_tokens < 1 or not 0 <= watermark_blocks < total_blocks:
            raise ValueError(f"no KV memory: {total_blocks=} {block_tokens=} {watermark_blocks=}")
        if not 0 <= sequence_blocks < total_blocks:
            raise ValueError(f"no memory for a sequence: {total_blocks=} {sequence_blocks=}")
        self.total_blocks = total_blocks
        self.block_tokens = block_tokens
        self.watermark_blocks = watermark_blocks
        self.sequence_blocks = sequence_blocks
        self.steps_done = 0  # the engine adds the steps that were run
        self.decoding = 0
        self._phases = [0] * block_tokens
        self._base_blocks = 0  # sum of ``base_blocks`` over the decoding requests
        self._reserved = 0  # blocks of prompts in progress, less what is held beyond once
        self._decoding_blocks, self._counted_at = 0, 0  # of decoding requests, at that step; -1: unknown
        self._held: dict[int, int] = {}
        self._bases: dict[int, int] = {}
        self._late_tokens = late_tokens
        self._named = named
        self.tracks = prefix_caching and named != b""
        self.cache = PrefixCache(total_blocks, block_tokens) if prefix_caching else None
        self._admissions = None if self.cache is None else Admissions(self.cache, self)
        self._tables: dict[int, BlockTable] = {} if self.cache is None else self.cache.tables

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        steps = self.steps_done
        if steps != self._counted_at:  # read twice per pass, with the same result
            block, phases = self.block_tokens, self._phases
            taken = self.decoding * (steps // block)
            for place in range(steps % block):  # compiled half as long as a sum over a slice
                taken += phases[place]
            self._counted_at, self._decoding_blocks = steps, self._base_blocks + taken
        return self.total_blocks - self._reserved - self._decoding_blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks that a request with ``tokens`` KV positions holds."""
        return -(-tokens // self.block_tokens) + self.sequence_blocks

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        base = self._bases.get(request)
        if base is None:
            return self._held.get(request, 0)
        return self.blocks_for(base + self.steps_done - 1)

    def context_tokens(self, request: int) -> int:
        """Context of a decoding request: prompt plus tokens generated so far."""
        return self._bases[request] + self.steps_done

    def reserve(self, request: int, tokens: int) -> None:
        """Give a prompt blocks for its first ``tokens`` positions."""
        before = self._held.get(request, 0)
        after = -(-tokens // self.block_tokens) + self.sequence_blocks
        assert before <= after, "a prompt chunk never gives blocks back"
        self._reserved += after - before
        self._held[request] = after
        if self._tables:
            table = self._tables.get(request)
            if table is not None:
                self._store_prompt(table, tokens)

    def _store_prompt(self, table: BlockTable, tokens: int) -> None:
        """Make a prompt's shared tokens findable at once; of its own tokens, record their number."""
        table.stored_tokens = tokens
        if table.cached_blocks < table.prefix_tokens // self.block_tokens:
            assert self.cache is not None and self._admissions is not None
            self._admissions.note_copies(table.prefix)
            self.cache.store(table, tokens)

    def start_decoding(self, request: int, context_tokens: int) -> None:
        """The request joins the decoding set; its context counts the token just sampled."""
        block = self.block_tokens
        held = self._held.pop(request)
        self._bases[request] = base = context_tokens - self.steps_done
        phase = (1 - base) % block
        self._reserved -= held
        self._counted_at = -1
        self._base_blocks += (base - 1 + phase) // block + self.sequence_blocks
        self._phases[phase] += 1
        self.decoding += 1

    def step_blocks(self) -> int:
        """Blocks the next decode step takes."""
        return self._phases[self.steps_done % self.block_tokens]

    def takes_block_next_step(self, request: int) -> bool:
        """Whether a decoding request needs a new block in the next step."""
        base = self._bases.get(request)
        return base is not None and (base + self.steps_done - 1) % self.block_tokens == 0

    def decodes(self, request: int) -> bool:
        """Whether the request decodes."""
        return request in self._bases

    def admissions(self, chunks: Iterable[Chunk] = (), decodes: bool = True) -> Admissions | None:
        """The look-up of what waiting requests would find in the step being composed; None: nothing ever.

        ``chunks``: the chunks of prompts in progress. ``decodes``: decoding requests take part in the step.
        """
        lookup = self._admissions
        if lookup is not None:
            if not self.tracks and not lookup.cache.index:
                return None
            lookup.begin(chunks, decodes)
        return lookup

    def cached_prefix_tokens(self, request: Request) -> int:
        """Tokens of its prompt that a request would find here if it were admitted now: whole blocks."""
        cache, lookup = self.cache, self._admissions
        if cache is None or lookup is None or not request.shared_prefix:
            return 0
        cache.trim(self.free_blocks)
        lookup.note_filled(request.shared_prefix, False)
        whole = (request.prompt_tokens - 1) // self.block_tokens
        cached = cache.find(request.id, request.shared_prefix, whole)
        return cached[-1][2] * self.block_tokens if cached else 0

    def filled_tokens(self, table: BlockTable, decodes: bool) -> int:
        """Tokens of a request's full blocks that can be found, or could if another request named them.

        ``decodes``: decoding requests take part in the step being composed.
        """
        base = self._bases.get(table.request)
        if base is None:
            return table.stored_tokens - table.late_tokens
        return base + self.steps_done - 1 - self._late_tokens + decodes

    def _is_named(self, request: int) -> bool:
        named = self._named
        return named is None or (request < len(named) and named[request] > 0)

    def steps_until_full(self, spare_blocks: int = 0) -> int:
        """Decode steps that surely have blocks, and leave ``spare_blocks`` free.

        Whole rounds if there is room for one, else single steps; 0 if the next step already lacks a block.
        """
        block, free = self.block_tokens, self.free_blocks - spare_blocks
        rounds = free // self.decoding
        if rounds > 0:
            return rounds * block
        for step in range(block):
            free -= self._phases[(self.steps_done + step) % block]
            if free < 0:
                return step
        raise AssertionError("a round of steps takes one block per request, and fewer are free")

    def blocks_of_steps(self, steps: int) -> int:
        """Blocks that decoding requests take in the next steps."""
        block, phases = self.block_tokens, self._phases
        more, first = self.decoding * (steps // block), self.steps_done % block
        for place in range(first, first + steps % block):
            more += phases[place % block]
        return more

    def admit(self, progress: Waiting, start: int, decodes: bool) -> None:
        """Let a request leave the queue and begin at ``start``, after stored blocks; ``reserve`` follows.

        ``decodes``: decoding requests take part in the step.
        """
        request, prefix = progress.id, progress.shared_prefix
        cache, lookup = self.cache, self._admissions
        if cache is None or lookup is None:
            return
        if not progress.was_preempted:
            cache.queried_tokens += progress.known_tokens
            cache.hit_tokens += start
        named = self._is_named(request)
        if not (named or prefix or start):
            return
        findable = ALL_TOKENS if named else prefix[-1][1] if prefix else 0
        blocks = start // self.block_tokens
        pieces = lookup.found(request, prefix, blocks, decodes) if blocks else ()
        self._reserved -= cache.admit(request, prefix, blocks, findable, pieces)

    def prefix_counts(self) -> tuple[int, int, int]:
        """Prompt tokens of all first admissions, those of them that were found, and blocks evicted."""
        if self.cache is None:
            return 0, 0, 0
        self.cache.trim(self.free_blocks)
        return self.cache.queried_tokens, self.cache.hit_tokens, self.cache.evicted_blocks

    def preempt(self, request: int, stored_tokens: int) -> None:
        """Release; with prefix caching the first ``stored_tokens`` can be found."""
        cache = self.cache
        if cache is None:
            self._give_up(request)
            return
        if not (self.tracks or cache.index):
            cache.begin(self.free_blocks)
        if request not in cache.tables:
            cache.admit(request, (), 0, ALL_TOKENS, ())
        table = cache.tables[request]
        table.findable_tokens = ALL_TOKENS
        self._leave(cache, table, stored_tokens)

    def retire(self, request: int) -> None:
        """Stop a request's decoding; it keeps its blocks until it is released."""
        cache, base = self.cache, self._bases.get(request)
        if cache is not None and base is not None and request in cache.tables:
            table = cache.tables[request]
            table.stored_tokens = base + self.steps_done - 1
            table.late_tokens = self._late_tokens
        self._held[request] = held = self._give_up(request)
        self._reserved += held

    def release(self, request: int) -> None:
        """Free all blocks of a request; tokens that others may look for can be found."""
        cache = self.cache
        if cache is None or not (self.tracks or cache.index):
            self._give_up(request)  # all free blocks are blank, so their order does not matter
            return
        table = self._tables.get(request)
        if table is None:
            cache.leave_blank(self._give_up(request))
            self._bound_queue(cache)
            return
        base = self._bases.get(request)
        self._leave(cache, table, table.stored_tokens if base is None else base + self.steps_done - 1)

    def blocks_freed(self, victims: tuple[int, ...]) -> int:
        """Blocks that would be free if the last victim left after the others: those only they hold."""
        request = victims[-1]
        held, cache = self.held_blocks(request), self.cache
        if cache is None or not cache.shared_blocks or request not in cache.tables:
            return held
        left: dict[Extent, int] = {}
        for victim in victims[:-1]:
            if victim in cache.tables:
                for extent in cache.tables[victim].parts():
                    left[extent] = left.get(extent, 0) + 1
        shared = [
            part.stop - part.start
            for part in cache.tables[request].parts()
            if part.users - left.get(part, 0) > 1
        ]
        return held - sum(shared)

    def forget_stored(self) -> None:
        """Forget all content of free blocks: the memory is lost, or another replica gets it."""
        if self.cache is not None:
            self.cache.trim(self.free_blocks)
            self.cache.forget()

    def _leave(self, cache: PrefixCache, table: BlockTable, stored_tokens: int) -> None:
        """Release the request's blocks; its first ``stored_tokens`` can be found."""
        cache.store(table, stored_tokens)
        held = self._give_up(table.request)
        self._reserved += cache.release(table, held)
        self._bound_queue(cache)

    def _bound_queue(self, cache: PrefixCache) -> None:
        """Drop taken blocks from the free queue now and then; the order of the others does not change."""
        if cache.queue.blocks > 2 * self.total_blocks:
            cache.trim(self.free_blocks)

    def _give_up(self, request: int) -> int:
        """Remove the request from the counts; returns the blocks it held."""
        base = self._bases.pop(request, None)
        if base is None:
            held = self._held.pop(request, 0)
            self._reserved -= held
            return held
        block = self.block_tokens
        phase = (1 - base) % block
        base_blocks = (base - 1 + phase) // block + self.sequence_blocks
        self._counted_at = -1
        self._base_blocks -= base_blocks
        self._phases[phase] -= 1
        self.decoding -= 1
        return base_blocks + -(-(self.steps_done - phase) // block)

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return (*self._held, *self._bases)


def ledger_of(replica: Replica, *, late_tokens: int, named: bytes | None) -> KvLedger:
    """A ledger of the replica's blocks; ``late_tokens``, ``named``: see ``KvLedger``."""
    return KvLedger(
        replica.kv_blocks,
        replica.block_tokens,
        watermark_blocks=replica.watermark_blocks,
        sequence_blocks=replica.sequence_blocks,
        prefix_caching=replica.prefix_caching,
        late_tokens=late_tokens,
        named=named,
    )
