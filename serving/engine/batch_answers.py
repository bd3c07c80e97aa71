"""Checks a batcher's answers: every type and value, before an answer is applied.

The checks depend on the queue, the running set and the memory. The first violation raises ``PolicyError``,
which ends the run, so nothing is undone. A run checks only batchers from outside this package; the package's
own are checked in its tests alone, which saves 5 % of a static run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from serving.engine.admissions import Admissions
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress
from serving.protocols.batch import CHOOSE, Batch, Batcher
from serving.protocols.policy_faults import fault, refused, shown, wrong_reason
from serving.vocabulary.actions import Chunk


class BatchQuestion(NamedTuple):
    """The batcher and replica of a question, and the state that the batcher was shown."""

    replica: int
    batcher: Batcher
    running: Mapping[int, Progress]
    prefilling: Mapping[int, Progress]
    waiting: deque[Progress]
    ledger: KvLedger


def check_batch(question: BatchQuestion, batch: Batch) -> None:
    """Check types and values, and that the batch does something; its victims are out already."""
    _, chunks, count, decode, max_steps, interruptible, reason = batch
    if not (
        type(chunks) is tuple
        and type(count) is int
        and type(max_steps) is int
        and max_steps > 0
        and (decode is True or decode is False)
        and (interruptible is True or interruptible is False)
        and type(reason) is str
        and reason
    ):
        _refuse(question, batch, _wrong_field(batch))
    if not chunks and (count or not (decode and question.ledger.decoding)):
        _refuse(
            question, batch, "the batch has neither prompt chunks nor decoding requests in its first step"
        )
    begun = len(chunks) - count
    if not 0 <= begun <= len(chunks):
        _refuse(question, batch, f"admit is {count}, outside 0 to {len(chunks)}, the number of chunks")
    _check_begun(question, batch, chunks[:begun])
    _check_admitted(question, batch, begun)


def check_blocks(question: BatchQuestion, batch: Batch) -> None:
    """Check, after its chunks have their blocks, that there are blocks for all its steps."""
    ledger, more = question.ledger, batch.max_steps - 1
    ends = [start + tokens for _, start, tokens in batch.chunks]
    whole = [question.running[request].known_tokens for request, _, _ in batch.chunks]
    joining = [end for end, known in zip(ends, whole) if end == known]
    free = ledger.free_blocks - ledger.blocks_of_steps(batch.max_steps if batch.decode else more)
    free -= sum([ledger.blocks_for(tokens + more) - ledger.blocks_for(tokens) for tokens in joining])
    if free < 0:
        steps = "a step" if not more else f"{batch.max_steps} steps"
        _refuse(question, batch, f"the batch needs {-free} more KV blocks than are free for {steps}")


def check_victims(question: BatchQuestion, batch: Batch) -> None:
    """Check that every request to be preempted runs on this replica, and is named once."""
    victims: Any = batch.preempt
    if type(victims) is not tuple or any(type(victim) is not int for victim in victims):
        _refuse(question, batch, "preempt is not a tuple of request ids")
    for position, victim in enumerate(victims):
        if victim not in question.running or victim in victims[:position]:
            _refuse(
                question, batch, f"preempt names request {victim}, which is not running or is named twice"
            )


def idle_with_work(question: BatchQuestion) -> NoReturn:
    """Raise: the batcher chose nothing although there is work and no other KV in the memory."""
    waits = (
        f"{len(question.running)} requests run and {len(question.waiting)} wait on replica {question.replica}"
    )
    raise fault(question.batcher, CHOOSE, f"returned None although {waits}")


def _check_begun(question: BatchQuestion, batch: Batch, chunks: tuple[Chunk, ...]) -> None:
    """Check that prompts in progress continue at their positions, each once."""
    for chunk in chunks:
        known: Any = question.prefilling.get(chunk[0]) if _is_chunk(chunk) else None
        if known is None or chunk[1] != known.computed:
            _refuse(question, batch, _wrong_chunk(chunk, known))
        left = known.known_tokens - chunk[1] - chunk[2]
        if chunk[2] < 1 or left < 0 or (left and batch.max_steps > 1):
            _refuse(question, batch, _wrong_chunk(chunk, known))
    if len({chunk[0] for chunk in chunks}) < len(chunks):
        _refuse(question, batch, "the batch has two chunks of one request")


def _check_admitted(question: BatchQuestion, batch: Batch, begun: int) -> None:
    """Check that requests are admitted in queue order, each at 0 or after its stored prefix."""
    ledger, chunks = question.ledger, batch.chunks
    waiting = iter(question.waiting)
    stored = ledger.admissions(chunks[:begun], batch.decode)
    free = ledger.free_blocks - (ledger.step_blocks() if batch.decode else 0)
    free -= sum(
        [
            ledger.blocks_for(begun_chunk[1] + begun_chunk[2]) - ledger.held_blocks(begun_chunk[0])
            for begun_chunk in chunks[:begun]
        ]
    )
    for chunk in chunks[begun:]:
        progress = next(waiting, None)
        if progress is None or not _is_chunk(chunk):
            _refuse(question, batch, _wrong_chunk(chunk, None))
        request, start, tokens = chunk
        left = progress.known_tokens - start - tokens
        fits = tokens > 0 and left >= 0 and not (left and batch.max_steps > 1)
        if progress.id != request or not fits or start < 0 or (start and stored is None):
            _refuse(question, batch, _wrong_chunk(chunk, progress))
        if stored is not None:
            free -= _check_start(question, batch, stored, progress, chunk, free_blocks=free)


def _check_start(
    question: BatchQuestion,
    batch: Batch,
    stored: Admissions,
    progress: Progress,
    chunk: Chunk,
    *,
    free_blocks: int,
) -> int:
    """Check that a request begins after stored whole blocks; returns the free blocks it takes."""
    request, start, tokens = chunk
    ledger = question.ledger
    pieces, _ = stored.find(progress, free_blocks)
    if start > pieces or start % ledger.block_tokens:
        why = f"request {request} has {pieces} tokens stored, in whole blocks"
        _refuse(question, batch, f"{why}, and cannot begin at position {start}")
    taken = stored.admit(progress, start, tokens)
    return ledger.blocks_for(start + tokens) - start // ledger.block_tokens + taken


def _refuse(question: BatchQuestion, batch: Batch, why: str) -> NoReturn:
    raise refused(question.batcher, CHOOSE, batch, f"{why} (replica {question.replica})")


def _is_chunk(chunk: object) -> bool:
    return type(chunk) is tuple and len(chunk) == 3 and all(type(part) is int for part in chunk)


def _wrong_chunk(chunk: Any, progress: Progress | None) -> str:
    """``progress``: the request whose prompt the chunk should belong to; None: there is none."""
    if not _is_chunk(chunk):
        return f"the chunk {shown(chunk)} is not (request, first position, tokens), a tuple of three ints"
    request = chunk[0]
    if progress is None:
        return f"the chunk {chunk} names a request that neither waits nor has an unfinished prompt"
    if progress.id != request:
        return f"request {progress.id} is before {request} in the queue"
    where = f"position {progress.computed}" if progress.computed else "position 0 or after its stored blocks"
    left = progress.known_tokens - progress.computed
    return (
        f"the chunk {chunk} does not fit: request {request} continues at {where}, once, with 1 to {left} "
        "tokens, and with all of them if max_steps is above 1"
    )


def _wrong_field(batch: Batch) -> str:
    wanted = {"chunks": tuple, "admit": int, "max_steps": int, "decode": bool, "interruptible": bool}
    for name, kind in wanted.items():
        if type(value := getattr(batch, name)) is not kind:
            return f"{name} is of type {kind.__name__}, not {type(value).__name__}"
    if batch.max_steps < 1:
        return f"max_steps is {batch.max_steps}, not 1 or more"
    return wrong_reason(batch.reason)
