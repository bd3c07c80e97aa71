"""Which requests a replica computes in its next pass.

ChunkedPrefill follows the vLLM v1 scheduler, PrefillFirst the v0 scheduler (vLLM, Apache-2.0, behaviour
described in its documentation); both preempt by recompute, newest first.
"""

from typing import NamedTuple

from serving.actions import Chunk
from serving.batch import Batch, ReplicaView


class Room(NamedTuple):
    """Memory for the resident set's next step, after ``victims`` have left (newest first)."""

    victims: tuple[int, ...]
    decoding: int
    free_blocks: int  # left after the decode step took its blocks


def room_for_decode(view: ReplicaView) -> Room:
    """Preempt from the tail of the running set until every remaining decode has its block."""
    need, free, decoding = view.step_blocks(), view.free_blocks, view.decoding
    if need <= free:
        return Room((), decoding, free - need)
    victims = []
    newest = view.newest_first()
    while need > free:
        victim = next(newest)
        victims.append(victim)
        free += view.held_blocks(victim)
        if view.is_decoding(victim):
            need -= view.takes_block_next_step(victim)
            decoding -= 1
    return Room(tuple(victims), decoding, free - need)


def decode_batch(steps: int, interruptible: bool) -> Batch:
    """The resident set decodes, undisturbed, for up to ``steps`` steps."""
    return Batch((), (), 0, True, steps, interruptible and steps > 1, "decode")


class ChunkedPrefill:
    """Decodes first, then prompt chunks up to a token budget, all in one step (vLLM v1).

    ``max_num_batched_tokens`` per step, ``max_num_seqs`` admitted requests.
    """

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        if not 1 <= max_num_seqs <= max_num_batched_tokens:
            raise ValueError("chunked prefill needs 1 <= max_num_seqs <= max_num_batched_tokens")
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens

    def choose(self, view: ReplicaView) -> Batch | None:
        """Running requests in order, then the queue while budget, sequences and memory last."""
        running = view.running
        if view.only_decodes:
            if not running:
                return None
            steps = view.steps_until_full()
            if steps:
                return decode_batch(steps, running < self.max_num_seqs)
        victims, decoding, free = room_for_decode(view)
        budget = self.max_num_batched_tokens - decoding
        chunks: list[Chunk] = []
        if running > view.decoding:
            victims, chunks, budget, free = self._continue_prompts(view, victims, budget, free)
        admit = 0
        if not victims and view.waiting and budget > 0:
            admit = self._admit(view, chunks, budget, free)
        if chunks:
            return Batch(victims, tuple(chunks), admit, True, 1, False, "chunked")
        if victims:
            return Batch(victims, (), 0, True, 1, False, "decode after preemption")
        return decode_batch(view.steps_until_full(), False)

    def _continue_prompts(
        self, view: ReplicaView, victims: tuple[int, ...], budget: int, free: int
    ) -> tuple[tuple[int, ...], list[Chunk], int, int]:
        """Chunks of prompts begun earlier; returns (victims, chunks, budget left, free blocks left).

        A prompt stays unfinished only when it used up a step's budget, so nothing was admitted behind it:
        the newest running request is the one to give way, and that is the prompt itself.
        """
        chunks: list[Chunk] = []
        for request, start, remaining in view.prefilling():
            if request in victims:
                continue
            tokens = min(remaining, budget)
            extra = view.blocks_for(start + tokens) - view.held_blocks(request)
            if extra > free:
                free += view.held_blocks(request)
                victims = (*victims, request)
                continue
            free -= extra
            budget -= tokens
            chunks.append((request, start, tokens))
        return victims, chunks, budget, free

    def _admit(self, view: ReplicaView, chunks: list[Chunk], budget: int, free: int) -> int:
        """Append chunks for admitted queue heads; returns how many were admitted."""
        seats = self.max_num_seqs - view.running
        admitted = 0
        for request, tokens in view.queue():
            if admitted == seats or budget == 0:
                break
            tokens = min(tokens, budget)
            blocks = view.blocks_for(tokens)
            if blocks > free:
                break
            free -= blocks
            budget -= tokens
            chunks.append((request, 0, tokens))
            admitted += 1
        return admitted


class PrefillFirst:
    """Whole prompts before any decode (vLLM v0).

    A prompt longer than ``max_num_batched_tokens`` runs alone; admission leaves the watermark free.
    """

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < 1:
            raise ValueError("prefill-first needs max_num_seqs and max_num_batched_tokens of at least 1")
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens

    def choose(self, view: ReplicaView) -> Batch | None:
        """A prefill pass when the queue's head fits, else a decode pass."""
        running = view.running
        if view.waiting:
            chunks = self._prompts(view)
            if chunks:
                return Batch((), chunks, len(chunks), False, 1, False, "prefill")
        if not running:
            return None
        steps = view.steps_until_full()
        if steps:
            return decode_batch(steps, not view.waiting and running < self.max_num_seqs)
        return Batch(room_for_decode(view).victims, (), 0, True, 1, False, "decode after preemption")

    def _prompts(self, view: ReplicaView) -> tuple[Chunk, ...]:
        """Whole prompts from the head of the queue."""
        chunks: list[Chunk] = []
        seats = self.max_num_seqs - view.running
        room = view.free_blocks - view.watermark_blocks
        batched = 0
        for request, tokens in view.queue():
            blocks = view.blocks_for(tokens)
            full = bool(chunks) and batched + tokens > self.max_num_batched_tokens
            if full or len(chunks) == seats or blocks > room:
                break
            room -= blocks
            batched += tokens
            chunks.append((request, 0, tokens))
        return tuple(chunks)
