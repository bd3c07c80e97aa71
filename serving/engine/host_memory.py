"""KV of preempted requests in host memory: which requests get room there, and which may return.

vLLM swaps a victim's blocks out before the step that needs them, and in before the first step of a returning
request: that step waits for the copies (vLLM 0.1.7, core/scheduler.py and worker/worker.py). So a swap is not
a transfer of its own; the next pass begins later by its time. Swapped-out requests wait before all prompts,
and no prompt begins meanwhile.
"""

from collections import deque

from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress


class HostMemory:
    """Host memory of one replica. ``blocks``: its size; 0: preempted requests are recomputed.

    ``block_ns``: time to copy a block between GPU and host. Counters: requests that went ``out``, requests
    that found it ``full``, and how long passes ``waited_ns`` for copies.
    """

    __slots__ = ("_held", "block_ns", "blocks", "full", "out", "waited_ns")

    def __init__(self, blocks: int, block_ns: int) -> None:
        self.blocks, self.block_ns = blocks, block_ns
        self._held: dict[int, int] = {}
        self.out = self.full = self.waited_ns = 0

    @property
    def held_blocks(self) -> int:
        """Blocks in use."""
        return sum(self._held.values())

    def take(self, ledger: KvLedger, victim: Progress) -> int:
        """Move a decoding victim's KV here and free its blocks; returns the ns that takes.

        0: there is no room, and nothing has changed. The KV of its last token is not there: the step that it
        feeds computes it.
        """
        stored = ledger.context_tokens(victim.id) - 1
        blocks = ledger.blocks_for(stored)
        if self.held_blocks + blocks > self.blocks:
            self.full += 1
            return 0
        self._held[victim.id] = blocks
        victim.known_tokens = victim.computed = stored
        victim.was_preempted = victim.swapped = True
        ledger.preempt(victim.id, 0)
        self.out += 1
        return self._count_copy(blocks)

    def has_room_back(self, ledger: KvLedger, waiting: deque[Progress]) -> bool:
        """Whether the queue's head is swapped out and has room besides the next decode step.

        As ``BlockSpaceManager.can_swap_in``: its blocks, one more and the watermark; an empty memory always
        takes it.
        """
        if not waiting or not waiting[0].swapped:
            return False
        left = ledger.free_blocks - ledger.step_blocks() - self._held[waiting[0].id] - 1
        return left >= ledger.watermark_blocks or not ledger.holders()

    def give_back(self, ledger: KvLedger, waiting: deque[Progress], seats: int) -> tuple[list[Progress], int]:
        """Let at most ``seats`` requests leave the queue and decode; also returns the ns of their copies."""
        back, took_ns = list[Progress](), 0
        while len(back) < seats and self.has_room_back(ledger, waiting):
            progress = waiting.popleft()
            progress.swapped = False
            ledger.reserve(progress.id, progress.known_tokens)
            ledger.start_decoding(progress.id, progress.known_tokens + 1)
            took_ns += self._count_copy(self._held.pop(progress.id))
            back.append(progress)
        return back, took_ns

    def forget(self, request: int) -> None:
        """Drop a request's KV: it does not return."""
        del self._held[request]

    def holders(self) -> tuple[int, ...]:
        """Requests whose KV is here."""
        return tuple(self._held)

    def _count_copy(self, blocks: int) -> int:
        took_ns = blocks * self.block_ns
        self.waited_ns += took_ns
        return took_ns
