"""KV memory of a replica in pipeline stages: one pool of blocks, a step counter per micro-batch.

A block is the same share of every stage's memory, so the pool has as many as the stage with the fewest.
"""

from collections.abc import Collection

from serving.engine.admissions import Admissions
from serving.engine.kv_ledger import KvLedger
from serving.vocabulary.actions import Chunk


class MicroBatchLedger(KvLedger):
    """The ledger of one pool. ``clocks``: by micro-batch, its decoding requests; prompts are in none."""

    __slots__ = ("_clock_of", "clocks")

    def __init__(self, total_blocks: int, block_tokens: int, watermark_blocks: int, count: int) -> None:
        super().__init__(total_blocks, block_tokens, watermark_blocks)
        self.clocks = [KvLedger(total_blocks, block_tokens) for _ in range(count)]
        self._clock_of: dict[int, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        free = total = self.total_blocks
        free -= self._reserved
        for clock in self.clocks:
            if clock.decoding:
                free -= total - clock.free_blocks
        return free

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        clock = self._clock_of.get(request)
        return self._held.get(request, 0) if clock is None else self.clocks[clock].held_blocks(request)

    def context_tokens(self, request: int) -> int:
        """Context of a decoding request: prompt plus tokens generated so far."""
        return self.clocks[self._clock_of[request]].context_tokens(request)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes."""
        return request in self._clock_of

    def decode_in(self, batch: int, request: int, context_tokens: int) -> None:
        """Let the request decode in this micro-batch from its next step on."""
        held = self._held.pop(request)
        self._reserved -= held
        clock = self.clocks[batch]
        clock.reserve(request, context_tokens - 1)
        clock.start_decoding(request, context_tokens)
        self._clock_of[request] = batch
        self.decoding += 1

    def preempt(self, request: int, stored_tokens: int) -> None:
        """Release the request's blocks; nothing is stored."""
        self.release(request)

    def release(self, request: int) -> None:
        """Free everything that the request holds."""
        batch = self._clock_of.pop(request, None)
        if batch is None:
            super().release(request)
            return
        self.clocks[batch].release(request)
        self.decoding -= 1

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return (*self._held, *self._clock_of)


class MicroBatchMemory:
    """The memory as shown to the batcher for the next step of one micro-batch (``KvView``).

    ``in_flight``: whether a step of each micro-batch is in progress; it has its blocks already.
    """

    __slots__ = ("_batch", "_clock", "_in_flight", "_ledger", "block_tokens", "watermark_blocks")

    def __init__(self, ledger: MicroBatchLedger, batch: int, in_flight: list[bool]) -> None:
        self._ledger = ledger
        self._batch = batch
        self._clock = ledger.clocks[batch]
        self._in_flight = in_flight
        self.block_tokens = ledger.block_tokens
        self.watermark_blocks = ledger.watermark_blocks

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds and no step in progress takes."""
        free = self._ledger.free_blocks
        for batch, clock in enumerate(self._ledger.clocks):
            if self._in_flight[batch] and clock.decoding:
                free -= clock.step_blocks()
        return free

    @property
    def decoding(self) -> int:
        """Number of requests that decode in this micro-batch."""
        return self._clock.decoding

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        return self._ledger.held_blocks(request)

    def step_blocks(self) -> int:
        """Blocks the next decode step takes."""
        return self._clock.step_blocks()

    def takes_block_next_step(self, request: int) -> bool:
        """Whether a request of this micro-batch needs a new block in the next step."""
        return self._clock.takes_block_next_step(request)

    def steps_until_full(self, spare_blocks: int = 0) -> int:
        """One step if there are blocks for it, else none; the engine computes how many more may run."""
        return int(self._clock.step_blocks() + spare_blocks <= self.free_blocks)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes in this micro-batch."""
        return self._clock.decodes(request)

    def blocks_freed(self, victims: tuple[int, ...]) -> int:
        """Blocks that would be free if the last of these requests left."""
        return self._ledger.held_blocks(victims[-1])

    def admissions(self, chunks: tuple[Chunk, ...] = (), decodes: bool = True) -> Admissions | None:
        """None: nothing is stored for other requests."""
        return None


def rounds_left(ledger: MicroBatchLedger, in_flight: Collection[bool], joining: int) -> int:
    """Number of steps of every micro-batch with sure blocks, including those in progress.

    joining: requests whose prompts are being computed and which decode afterwards.
    """
    free, decoding = ledger.free_blocks, ledger.decoding + joining
    for busy, clock in zip(in_flight, ledger.clocks):
        if busy and clock.decoding:
            free -= clock.step_blocks()
    return 1 + max(0, free) // max(1, decoding) * ledger.block_tokens
