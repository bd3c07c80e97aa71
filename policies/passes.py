"""The passes that the batchers of ``policies.batching`` choose, from what they see and their settings.

Compiled (``nativecore.modules``), as a batcher is asked after every second event.
"""

from collections import deque

from serving.protocols.batch import Batch, ReplicaView
from serving.vocabulary.actions import Chunk


def _batch(
    *,
    preempt: tuple[int, ...] = (),
    chunks: tuple[Chunk, ...] = (),
    admit: int = 0,
    decode: bool,
    steps: int,
    interruptible: bool,
    reason: str,
) -> Batch:
    """As ``Batch(...)``, which takes three times as long."""
    return tuple.__new__(Batch, (preempt, chunks, admit, decode, steps, interruptible, reason))


def make_room(view: ReplicaView, need: int) -> tuple[tuple[int, ...], int, int]:
    """Preempt from the tail of the running set (lowest priority first) until ``need`` blocks are free.

    ``need``: blocks the next step takes; each preempted request may lower it by one. Returns (victims newest
    first, requests left decoding, free blocks after their step).
    """
    kv = view.kv
    free, decoding = kv.free_blocks, kv.decoding
    victims = []
    newest = view.newest_first()
    while need > free:
        victim = next(newest)
        victims.append(victim)
        free += kv.blocks_freed(tuple(victims))
        if kv.decodes(victim):
            need -= kv.takes_block_next_step(victim)
            decoding -= 1
    return tuple(victims), decoding, free - need


def append_slots(view: ReplicaView) -> tuple[int, ...]:
    """Requests to preempt, newest first, if each request must find a free block, needed or not.

    The oldest request takes its block first. If no block is free, the newest request not yet handled is
    preempted, and finally the request itself (vLLM 0.6: Scheduler._schedule_running,
    BlockSpaceManagerV1.can_append_slots). With priorities, requests of higher priority take blocks first and
    are preempted last.
    """
    kv = view.kv
    order = reversed(list(view.newest_first())) if view.by_priority else view.running
    free, victims, to_come = kv.free_blocks, list[int](), deque(order)
    while to_come:
        request = to_come.popleft()
        if not kv.decodes(request):
            continue
        while free < 1:
            victims.append(to_come.pop() if to_come else request)
            free += kv.blocks_freed(tuple(victims))
        if not victims or victims[-1] != request:
            free -= kv.takes_block_next_step(request)
    return tuple(victims)


def _spare(
    view: ReplicaView,
    chunks: list[Chunk],
    prompt: int,
    *,
    need: int,
    victims: tuple[int, ...],
    budget: int,
    free: int,
) -> tuple[tuple[int, ...], int, int]:
    """Preempt requests of lower priority than ``prompt`` until it has its blocks, finally the prompt itself.

    ``chunks``: the chunks of requests that stay. Returns (victims, budget left, free blocks left).
    """
    kv, staying = view.kv, {request for request, _, _ in chunks}
    for victim in view.newest_first():
        if need <= free:
            break
        if victim in victims or victim in staying:
            continue
        victims = (*victims, victim)
        free += kv.blocks_freed(victims)
        if kv.decodes(victim):
            free += kv.takes_block_next_step(victim)
            budget += 1
        if victim == prompt:
            break
    return victims, budget, free


def decode_batch(steps: int, interruptible: bool) -> Batch:
    """The resident requests decode for up to ``steps`` steps."""
    return _batch(decode=True, steps=steps, interruptible=interruptible and steps > 1, reason="decode")


def after_preemption(victims: tuple[int, ...]) -> Batch:
    """One decode step of the remaining requests; the next batch can use the victims' blocks."""
    return _batch(
        preempt=victims, decode=True, steps=1, interruptible=False, reason="decode after preemption"
    )


class ChunkedPasses:
    """Of ``ChunkedPrefill``: decodes, then chunks of prompts, all in one step."""

    __slots__ = ("max_num_batched_tokens", "max_num_seqs", "reserve_full_prompt")

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int, reserve_full_prompt: bool) -> None:
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.reserve_full_prompt = reserve_full_prompt

    def choose(self, view: ReplicaView) -> Batch | None:
        """Take running requests in order, then queued ones while budget, sequence slots and memory last."""
        running, waiting, kv = len(view.running), len(view.waiting), view.kv
        if not waiting and not view.prefilling:
            if not kv.decoding:
                return None
            steps = kv.steps_until_full()
            if steps:
                return decode_batch(steps, running < min(self.max_num_seqs, view.most_running))
        return self._choose_chunks(view, running, waiting)

    def _choose_chunks(self, view: ReplicaView, running: int, waiting: int) -> Batch | None:
        kv, most = view.kv, min(self.max_num_seqs, view.most_running)
        victims: tuple[int, ...] = ()
        decoding, need = kv.decoding, kv.step_blocks()
        free = kv.free_blocks - need
        if free < 0:
            victims, decoding, free = make_room(view, need)
        budget = self.max_num_batched_tokens - decoding
        chunks: list[Chunk] = []
        if view.prefilling:
            victims, budget, free = self._continue_prompts(view, chunks, victims, budget, free)
        admit, growing = 0, False
        if waiting and not victims:
            seats = most - running
            admit, budget, free, growing = self._admit(view, chunks, seats, budget, free)
        if not chunks:
            if victims:
                return after_preemption(victims)
            return decode_batch(1 if growing else kv.steps_until_full(), False) if decoding else None
        steps = 1
        # With budget left over every prompt admitted so far is complete, so only decoding follows. As many
        # steps as a block has tokens take one block per request, whatever its position in its block.
        if budget and admit == waiting and not victims:
            steps += free // (decoding + len(chunks)) * kv.block_tokens
        interruptible = steps > 1 and running + admit < most
        return _batch(
            preempt=victims,
            chunks=tuple(chunks),
            admit=admit,
            decode=True,
            steps=steps,
            interruptible=interruptible,
            reason="chunked",
        )

    def _continue_prompts(
        self, view: ReplicaView, chunks: list[Chunk], victims: tuple[int, ...], budget: int, free: int
    ) -> tuple[tuple[int, ...], int, int]:
        """Append chunks of prompts begun earlier; returns (victims, budget left, free blocks left).

        A prompt stays unfinished only if it used up a step's budget, so nothing was admitted after it. The
        newest running request, which is preempted, is therefore the prompt itself. With priorities, requests
        of lower priority are preempted before it.
        """
        kv = view.kv
        for progress in view.prefilling.values():
            request, start = progress.id, progress.computed
            if request in victims:
                continue
            tokens = min(progress.known_tokens - start, budget)
            held = kv.held_blocks(request)
            extra = -(-(start + tokens) // kv.block_tokens) + kv.sequence_blocks - held
            if extra > free and view.by_priority:
                victims, budget, free = _spare(
                    view, chunks, request, need=extra, victims=victims, budget=budget, free=free
                )
                if request in victims:
                    continue
            if extra > free:
                victims = (*victims, request)
                free += kv.blocks_freed(victims)
                continue
            free -= extra
            budget -= tokens
            chunks.append((request, start, tokens))
        return victims, budget, free

    def _admit(
        self, view: ReplicaView, chunks: list[Chunk], seats: int, budget: int, free: int
    ) -> tuple[int, int, int, bool]:
        """Append chunks for admitted requests from the head of the queue.

        Returns (admitted, budget left, free blocks left, whether the queue's head may need less after each
        step).
        """
        kv, full = view.kv, self.reserve_full_prompt
        block, own = kv.block_tokens, kv.sequence_blocks
        stored = kv.admissions(tuple(chunks)) if seats > 0 and budget else None
        admitted = start = taken = 0
        for progress in view.waiting:
            if admitted >= seats or not budget:
                break
            known = progress.known_tokens
            if stored is not None:
                start, taken = stored.find(progress, free)
            tokens = known - start
            if tokens > budget:
                tokens = budget
            # Cached blocks that nobody uses are on the free list, so using them takes free blocks, too.
            found = start // block - taken - own
            blocks = -(-(start + tokens) // block) - found
            if (-(-known // block) - found if full else blocks) > free:
                return admitted, budget, free, stored is not None and stored.growing
            if stored is not None:
                stored.admit(progress, start, tokens)
            free -= blocks
            budget -= tokens
            chunks.append((progress.id, start, tokens))
            admitted += 1
        return admitted, budget, free, False


class PromptPasses:
    """Of ``PrefillFirst``: whole prompts before any decode."""

    __slots__ = ("max_num_batched_tokens", "max_num_seqs", "spare_blocks")

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int, spare_blocks: int) -> None:
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.spare_blocks = spare_blocks

    def choose(self, view: ReplicaView) -> Batch | None:
        """A prefill pass if the queue's head fits, else a decode pass."""
        running, waiting = len(view.running), len(view.waiting)
        if view.prefilling:
            return self._prefill_again(view)
        if waiting:
            batch = self._prefill(view, running, waiting)
            if batch is not None:
                return batch
        if not view.kv.decoding:
            return None
        steps = view.kv.steps_until_full(self.spare_blocks)
        if steps:
            return decode_batch(steps, not waiting and running < min(self.max_num_seqs, view.most_running))
        if not self.spare_blocks:
            return after_preemption(make_room(view, view.kv.step_blocks())[0])
        victims = append_slots(view)
        return after_preemption(victims) if victims else decode_batch(1, False)

    def _prefill(self, view: ReplicaView, running: int, waiting: int) -> Batch | None:
        """Whole prompts from the head of the queue; if that empties the queue, the same pass also decodes."""
        most = min(self.max_num_seqs, view.most_running)
        chunks, free = self._prompts(view, most - running)
        if not chunks:
            return None
        steps, decoding = 1, running + len(chunks)
        if len(chunks) == waiting:
            steps += max(0, free - self.spare_blocks) // decoding * view.kv.block_tokens
        interruptible = steps > 1 and decoding < most
        return _batch(
            chunks=chunks,
            admit=len(chunks),
            decode=False,
            steps=steps,
            interruptible=interruptible,
            reason="prefill",
        )

    def _prefill_again(self, view: ReplicaView) -> Batch:
        """Repeat a prefill pass cancelled before its first step: its prompts hold memory but no KV."""
        chunks = tuple(
            (progress.id, progress.computed, progress.known_tokens - progress.computed)
            for progress in view.prefilling.values()
        )
        return _batch(chunks=chunks, decode=False, steps=1, interruptible=False, reason="prefill again")

    def _prompts(self, view: ReplicaView, seats: int) -> tuple[tuple[Chunk, ...], int]:
        """At most ``seats`` whole prompts, as tokens and memory allow, and the free blocks that remain."""
        chunks: list[Chunk] = []
        kv = view.kv
        room = kv.free_blocks - kv.watermark_blocks
        batched = start = taken = 0
        stored = kv.admissions((), False)
        for progress in view.waiting:
            known = progress.known_tokens
            if stored is not None:
                start, taken = stored.find(progress, room + kv.watermark_blocks)
            tokens = known - start
            blocks = -(-known // kv.block_tokens) - start // kv.block_tokens + taken + kv.sequence_blocks
            full = bool(chunks) and batched + tokens > self.max_num_batched_tokens
            if full or len(chunks) >= seats or blocks > room or progress.swapped:
                break
            if stored is not None:
                stored.admit(progress, start, tokens)
            room -= blocks
            batched += tokens
            chunks.append((progress.id, start, tokens))
        return tuple(chunks), room + kv.watermark_blocks
