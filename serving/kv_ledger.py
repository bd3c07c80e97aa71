"""The paged KV memory of one replica, kept in O(1) per run instead of O(1) per token.

A step counter ``steps_done`` ages every decoding request at once: one that joined with context c at
counter s keeps ``base = c - s`` and has context ``base + steps_done`` ever after. Context counts the token
the next step feeds, so the positions stored are context - 1 and a step needs a new block exactly when
context - 1 is a multiple of the block size. Requests are therefore counted by ``-base mod block``: the bin
whose turn it is tells how many blocks a step takes, and a full round over the bins takes one per request.
"""


class KvLedger:
    """Blocks held per request; ``watermark_blocks`` stay free when a new request is admitted."""

    __slots__ = (
        "_bases",
        "_held",
        "_turns",
        "block_tokens",
        "decoding",
        "free_blocks",
        "steps_done",
        "total_blocks",
        "watermark_blocks",
    )

    def __init__(self, total_blocks: int, block_tokens: int, watermark_blocks: int = 0) -> None:
        if total_blocks < 1 or block_tokens < 1 or not 0 <= watermark_blocks < total_blocks:
            raise ValueError(f"no KV memory: {total_blocks=} {block_tokens=} {watermark_blocks=}")
        self.total_blocks = total_blocks
        self.block_tokens = block_tokens
        self.watermark_blocks = watermark_blocks
        self.free_blocks = total_blocks
        self.steps_done = 0
        self.decoding = 0
        self._turns = [0] * block_tokens
        self._held: dict[int, int] = {}
        self._bases: dict[int, int] = {}

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
        """Give the request blocks for its first ``tokens`` positions."""
        before = self._held.get(request, 0)
        after = self.blocks_for(tokens)
        assert before <= after, "a prompt chunk never gives blocks back"
        self.free_blocks -= after - before
        assert self.free_blocks >= 0, "a batcher handed out blocks that are not there"
        self._held[request] = after

    def start_decoding(self, request: int, context_tokens: int) -> None:
        """The request joins the decoding set; its context counts the token just sampled."""
        held = self._held.pop(request)
        assert held == self.blocks_for(context_tokens - 1)
        base = context_tokens - self.steps_done
        self._bases[request] = base
        self._turns[-base % self.block_tokens] += 1
        self.decoding += 1

    def step_blocks(self) -> int:
        """Blocks the next decode step takes."""
        return self._turns[(self.steps_done - 1) % self.block_tokens]

    def takes_block_next_step(self, request: int) -> bool:
        """Whether a decoding request needs a new block in the next step."""
        base = self._bases.get(request)
        return base is not None and (base + self.steps_done - 1) % self.block_tokens == 0

    def blocks_of_steps(self, steps: int) -> int:
        """Blocks that the next ``steps`` decode steps take, with nobody joining or leaving."""
        rounds, rest = divmod(steps, self.block_tokens)
        taken = rounds * self.decoding
        if rest:
            turns = self._turns
            start = (self.steps_done - 1) % self.block_tokens
            end = start + rest
            taken += sum(turns[start:end])
            if end > self.block_tokens:
                taken += sum(turns[: end - self.block_tokens])
        return taken

    def steps_until_full(self) -> int:
        """Decode steps that surely have blocks: whole rounds when there is room for one, else to the step.

        0 when the next step already lacks one.
        """
        rounds = self.free_blocks // self.decoding
        if rounds:
            return rounds * self.block_tokens
        left = self.free_blocks
        start = (self.steps_done - 1) % self.block_tokens
        for step in range(self.block_tokens):
            left -= self._turns[(start + step) % self.block_tokens]
            if left < 0:
                return step
        raise AssertionError("a round of steps takes one block per request, and fewer are free")

    def advance(self, steps: int) -> None:
        """``steps`` decode steps have run."""
        if steps == 1:
            self.free_blocks -= self._turns[(self.steps_done - 1) % self.block_tokens]
        else:
            self.free_blocks -= self.blocks_of_steps(steps)
        assert self.free_blocks >= 0, "more decode steps ran than there were blocks for"
        self.steps_done += steps

    def release(self, request: int) -> None:
        """Everything the request holds is free again."""
        base = self._bases.pop(request, None)
        if base is None:
            self.free_blocks += self._held.pop(request, 0)
            return
        self.free_blocks += -(-(base + self.steps_done - 1) // self.block_tokens)
        self._turns[-base % self.block_tokens] -= 1
        self.decoding -= 1

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return (*self._held, *self._bases)
