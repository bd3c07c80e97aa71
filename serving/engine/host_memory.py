"""KV of preempted requests in host memory: who finds room there, and who may come back.

vLLM swaps a victim's blocks out before the step that wants them, and in before the first step of who comes
back: that step waits for the copies (vLLM 0.1.7, core/scheduler.py and worker/worker.py). So a swap is no
transfer of its own, and the next pass begins so much later. Who is swapped out waits before all prompts, and
none begins meanwhile.
"""

from collections import deque

from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress


class HostMemory:
    """Of one replica. ``blocks``: how many there are; 0: who is preempted is computed again.

    ``block_ns``: what a block takes between GPU and host. Counted are requests that went ``out``, those that
    found it ``full``, and how long passes ``waited_ns`` for copies.
    """

    __slots__ = ("_held", "block_ns", "blocks", "full", "out", "waited_ns")

    def __init__(self, blocks: int, block_ns: int) -> None:
        self.blocks, self.block_ns = blocks, block_ns
        self._held: dict[int, int] = {}
        self.out = self.full = self.waited_ns = 0

    @property
    def held_blocks(self) -> int:
        """Blocks in which KV is kept."""
        return sum(self._held.values())

    def take(self, ledger: KvLedger, victim: Progress) -> int:
        """A victim that decodes gives its blocks back, and its KV is here; how long that takes in ns.

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
        return self._copied(blocks)

    def has_room_back(self, ledger: KvLedger, waiting: deque[Progress]) -> bool:
        """Whether the queue's head is one of these and has room beside the next step of those who decode.

        As ``BlockSpaceManager.can_swap_in``: its blocks, one more and the watermark; an empty memory always
        takes it.
        """
        if not waiting or not waiting[0].swapped:
            return False
        left = ledger.free_blocks - ledger.step_blocks() - self._held[waiting[0].id] - 1
        return left >= ledger.watermark_blocks or not ledger.holders()

    def give_back(self, ledger: KvLedger, waiting: deque[Progress], seats: int) -> tuple[list[Progress], int]:
        """At most ``seats`` leave the queue and decode; and how long their copies take in ns."""
        back, took_ns = list[Progress](), 0
        while len(back) < seats and self.has_room_back(ledger, waiting):
            one = waiting.popleft()
            one.swapped = False
            ledger.reserve(one.id, one.known_tokens)
            ledger.start_decoding(one.id, one.known_tokens + 1)
            took_ns += self._copied(self._held.pop(one.id))
            back.append(one)
        return back, took_ns

    def holders(self) -> tuple[int, ...]:
        """Requests whose KV is here."""
        return tuple(self._held)

    def _copied(self, blocks: int) -> int:
        took_ns = blocks * self.block_ns
        self.waited_ns += took_ns
        return took_ns
