"""The paged KV memory of one replica, kept in O(1) per run instead of O(1) per token.

A step counter ages every decoding request at once: one that joined with context c at counter s keeps ``base =
c - s`` and has context ``base + steps_done`` ever after. Context counts the token the next step feeds, so a
request stores base + steps_done - 1 positions. Write base - 1 as ``block * base_blocks - phase`` with turn in
0..block-1; then it holds ``base_blocks + ceil((steps_done - phase) / block)`` blocks, and takes a new one in
the steps whose counter is ``phase`` modulo the block size. A histogram over the turns therefore tells the
blocks of everybody, and what any number of steps will take.

The ledger counts blocks and knows none of them by what it holds. What does is ``_stored``, None when prefix
caching is off: then nothing is asked of it and nothing noted. It is told of blocks that are given back with
their content (``preempt``) or without (``release``); admission asks it in one place (``cached_tokens``), and
a request that is admitted takes what was found (``resume``). Today its keys are preempted requests, which
find their own blocks. Prefixes shared between requests (vLLM's block pool: hash -> block, users counted,
blocks without users evicted first in, first out) have their place there: keys are hashes, ``release`` leaves
the content too, and a block that several use is counted once, by one more sum in ``free_blocks``.
"""

from serving.engine.free_queue import FreeQueue


class KvLedger:
    """Blocks held per request; ``watermark_blocks`` stay free when a new request is admitted.

    With ``prefix_caching`` a preempted request finds those of its blocks again that no other has taken.
    """

    __slots__ = (
        "_base_blocks",
        "_bases",
        "_counted_at",
        "_decoding_blocks",
        "_held",
        "_phases",
        "_reserved",
        "_stored",
        "block_tokens",
        "decoding",
        "steps_done",
        "total_blocks",
        "watermark_blocks",
    )

    def __init__(
        self, total_blocks: int, block_tokens: int, watermark_blocks: int = 0, prefix_caching: bool = False
    ) -> None:
        if total_blocks < 1 or block_tokens < 1 or not 0 <= watermark_blocks < total_blocks:
            raise ValueError(f"no KV memory: {total_blocks=} {block_tokens=} {watermark_blocks=}")
        self.total_blocks = total_blocks
        self.block_tokens = block_tokens
        self.watermark_blocks = watermark_blocks
        self.steps_done = 0  # the engine adds the steps that were run
        self.decoding = 0
        self._phases = [0] * block_tokens
        self._base_blocks = 0  # sum of ``base_blocks`` over the decoding requests
        self._reserved = 0  # blocks of prompts in progress
        self._decoding_blocks, self._counted_at = 0, 0  # of those who decode, at that step; -1: not known
        self._held: dict[int, int] = {}
        self._bases: dict[int, int] = {}
        self._stored = FreeQueue() if prefix_caching else None

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        steps = self.steps_done
        if steps != self._counted_at:  # asked for twice per pass, and the same both times
            block = self.block_tokens
            taken = self.decoding * (steps // block) + sum(self._phases[: steps % block])
            self._counted_at, self._decoding_blocks = steps, self._base_blocks + taken
        return self.total_blocks - self._reserved - self._decoding_blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks that ``tokens`` KV positions occupy."""
        return -(-tokens // self.block_tokens)

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 when it holds none."""
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
        after = -(-tokens // self.block_tokens)
        assert before <= after, "a prompt chunk never gives blocks back"
        self._reserved += after - before
        self._held[request] = after

    def start_decoding(self, request: int, context_tokens: int) -> None:
        """The request joins the decoding set; its context counts the token just sampled."""
        block = self.block_tokens
        held = self._held.pop(request)
        self._bases[request] = base = context_tokens - self.steps_done
        phase = (1 - base) % block
        self._reserved -= held
        self._counted_at = -1
        self._base_blocks += (base - 1 + phase) // block
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
        """Whether the request is one of those that decode."""
        return request in self._bases

    def cached_tokens(
        self,
        request: int,
        known_tokens: int,
        free_blocks: int,
        resumed: list[tuple[int, int]] | tuple[()] = (),
    ) -> int:
        """KV positions that a waiting request of ``known_tokens`` would find still stored; whole blocks.

        ``free_blocks`` and ``resumed`` (request, blocks found) are those of the step being put together. The
        last position is always computed again: its output is the next token (vLLM, get_computed_blocks).
        """
        if self._stored is None:
            return 0
        left = self._stored.left_blocks(request, free_blocks, resumed)
        return min(left, (known_tokens - 1) // self.block_tokens) * self.block_tokens

    def steps_until_full(self, spare_blocks: int = 0) -> int:
        """Decode steps that surely have blocks, and leave so many free.

        Whole rounds when there is room for one, else to the step; 0 when the next step already lacks a block.
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
        """Blocks that those who decode take in the next steps."""
        block = self.block_tokens
        rounds, rest = divmod(steps, block)
        phases = [self._phases[(self.steps_done + step) % block] for step in range(rest)]
        return self.decoding * rounds + sum(phases)

    def resume(self, request: int, cached_tokens: int) -> None:
        """A preempted request is admitted again and finds ``cached_tokens``; ``reserve`` follows."""
        if self._stored is not None and self._stored.remembers(request):
            self._stored.find(request, cached_tokens // self.block_tokens)

    def preempt(self, request: int, cached_tokens: int) -> None:
        """Release; with prefix caching the first ``cached_tokens`` can be found again for a while."""
        held = self._give_up(request)
        if self._stored is not None:
            self._stored.leave(request, held, cached_tokens // self.block_tokens)

    def retire(self, request: int) -> None:
        """The request decodes no more, and keeps its blocks until it is released."""
        self._held[request] = held = self._give_up(request)
        self._reserved += held

    def release(self, request: int) -> None:
        """Everything the request holds is free again."""
        held = self._give_up(request)
        stored = self._stored
        if stored is not None:
            stored.give_back(held)

    def forget(self, request: int) -> None:
        """A request that waits is gone for good: no request will look for the blocks that it left."""
        if self._stored is not None:
            self._stored.forget(request)

    def _give_up(self, request: int) -> int:
        """Take the request off the books; returns the blocks it held."""
        base = self._bases.pop(request, None)
        if base is None:
            held = self._held.pop(request, 0)
            self._reserved -= held
            return held
        block = self.block_tokens
        phase = (1 - base) % block
        base_blocks = (base - 1 + phase) // block
        self._counted_at = -1
        self._base_blocks -= base_blocks
        self._phases[phase] -= 1
        self.decoding -= 1
        return base_blocks + -(-(self.steps_done - phase) // block)

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return (*self._held, *self._bases)
