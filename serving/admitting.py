"""A batcher's answer is checked while it is applied: requests are admitted, memory is reserved.

What it may answer depends on the queue, the running set and the memory, which all are at hand here. The first
thing that does not fit raises ``PolicyError``, which ends the run, so nothing need be taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from serving.actions import Chunk
from serving.batch import CHOOSE, Batch
from serving.policy_faults import fault, refused, shown, wrong_reason

if TYPE_CHECKING:
    from serving.engine import Engine
    from serving.progress import Progress


def admit_batch(engine: Engine, batch: Batch) -> tuple[tuple[Chunk, ...], bool, int, bool, str]:
    """Move requests from the queue to the running set and reserve memory, victims being out already.

    Returns (chunks, decode, max_steps, interruptible, reason) of the batch. Called once per pass: a test of
    each type and value, and words only when something is wrong.
    """
    _, chunks, admit, decode, max_steps, interruptible, reason = batch
    if not (
        type(chunks) is tuple
        and type(admit) is int
        and type(max_steps) is int
        and max_steps > 0
        and (decode is True or decode is False)
        and (interruptible is True or interruptible is False)
        and type(reason) is str
        and reason
    ):
        _refuse(engine, batch, _wrong_field(batch))
    ledger, completed, beginning = engine.ledger, 0, chunks
    if not chunks:
        if admit or not (decode and ledger.decoding):
            _refuse(engine, batch, "it computes no prompt and lets nobody decode in its first step")
    elif admit != len(chunks):
        completed, beginning = _go_on(engine, batch)
    for chunk in beginning:
        try:
            request, start, tokens = chunk
            progress = engine.waiting.popleft()
        except (IndexError, TypeError, ValueError):
            _refuse(engine, batch, _wrong_chunk(chunk, None))
        end = start + tokens
        if not (
            type(chunk) is tuple
            and progress.id == request
            and type(request) is int
            and type(start) is int
            and type(tokens) is int
            and tokens > 0
            and (not start or progress.comes_back)
            and (end == progress.known_tokens or (end < progress.known_tokens and max_steps == 1))
        ):
            _refuse(engine, batch, _wrong_chunk(chunk, progress))
        completed += end == progress.known_tokens
        engine.running[request] = engine.prefilling[request] = progress
        if progress.comes_back:
            _resume(engine, batch, progress, start)
        ledger.reserve(request, end)
    if not ledger.has_room(completed, decode, max_steps):
        _check_room(engine, batch)
    return chunks, decode, max_steps, interruptible, reason


def check_victims(engine: Engine, batch: Batch) -> None:
    """Those who are to be preempted run here, each once."""
    victims: Any = batch.preempt
    if type(victims) is not tuple or any(type(one) is not int for one in victims):
        _refuse(engine, batch, "preempt is no tuple of request ids")
    for position, one in enumerate(victims):
        if one not in engine.running or one in victims[:position]:
            _refuse(engine, batch, f"it preempts request {one}, which does not run, or twice")


def left_lying(engine: Engine) -> NoReturn:
    """The batcher has nothing to run though there is work, and nobody else's KV in the memory."""
    waits = f"{len(engine.running)} requests run and {len(engine.waiting)} wait on replica {engine.id}"
    raise fault(engine.batcher, CHOOSE, f"left work lying: it answered None, and {waits}")


def _go_on(engine: Engine, batch: Batch) -> tuple[int, tuple[Chunk, ...]]:
    """Prompts under way go on; returns how many of them are completed, and the chunks of those admitted."""
    chunks, ledger, completed = batch.chunks, engine.ledger, 0
    begun = len(chunks) - batch.admit
    if not 0 <= begun <= len(chunks):
        _refuse(engine, batch, f"admit is {batch.admit}, of {len(chunks)} chunks")
    for chunk in chunks[:begun]:
        known: Any = engine.prefilling.get(chunk[0]) if _is_chunk(chunk) else None
        if known is None or chunk[1] != known.computed or chunks.count(chunk) > 1:
            _refuse(engine, batch, _wrong_chunk(chunk, known))
        left = known.known_tokens - sum(chunk[1:])
        if chunk[2] < 1 or left < 0 or (left and batch.max_steps > 1):
            _refuse(engine, batch, _wrong_chunk(chunk, known))
        completed += not left
        ledger.reserve(chunk[0], sum(chunk[1:]))
    if len({chunk[0] for chunk in chunks[:begun]}) < begun:
        _refuse(engine, batch, "it has two chunks of one request")
    return completed, chunks[begun:]


def _resume(engine: Engine, batch: Batch, progress: Progress, start: int) -> None:
    """One who was preempted comes back, to what is still stored of it."""
    ledger = engine.ledger
    if start:
        stored = ledger.cached_tokens(progress.id, progress.known_tokens, ledger.free_blocks)
        if not 0 < start <= stored or start % ledger.block_tokens:
            why = f"request {progress.id} has {stored} tokens stored, in whole blocks"
            _refuse(engine, batch, f"{why}, and cannot begin at position {start}")
    progress.computed = start
    ledger.resume(progress.id, start)


def _check_room(engine: Engine, batch: Batch) -> None:
    """To the block, which ``KvLedger.has_room`` is not."""
    ledger, more = engine.ledger, batch.max_steps - 1
    ends = [start + tokens for _, start, tokens in batch.chunks]
    whole = [engine.running[request].known_tokens for request, _, _ in batch.chunks]
    joining = [end for end, known in zip(ends, whole) if end == known]
    free = ledger.free_blocks - ledger.blocks_of_steps(batch.max_steps if batch.decode else more)
    free -= sum([ledger.blocks_for(tokens + more) - ledger.blocks_for(tokens) for tokens in joining])
    if free < 0:
        steps = "a step" if not more else f"{batch.max_steps} steps"
        _refuse(engine, batch, f"it wants {-free} more KV blocks than there are for {steps}")


def _refuse(engine: Engine, batch: Batch, why: str) -> NoReturn:
    raise refused(engine.batcher, CHOOSE, batch, f"{why} (replica {engine.id})")


def _is_chunk(chunk: object) -> bool:
    return type(chunk) is tuple and len(chunk) == 3 and all(type(part) is int for part in chunk)


def _wrong_chunk(chunk: Any, progress: Progress | None) -> str:
    """``progress``: whose prompt it would be a part of; None: nobody's."""
    if not _is_chunk(chunk):
        return f"the chunk {shown(chunk)} is not (request, first position, tokens), a tuple of three ints"
    request = chunk[0]
    if progress is None:
        return f"the chunk {chunk} is of no request that waits or has a prompt under way"
    if progress.id != request:
        return f"request {progress.id} is before {request} in the queue"
    where = "position 0, or what is stored" if progress.comes_back else f"position {progress.computed}"
    left = progress.known_tokens - progress.computed
    return (
        f"the chunk {chunk} does not fit: request {request} goes on at {where}, once, with 1 to {left} "
        "tokens, and with all of them where max_steps is above 1"
    )


def _wrong_field(batch: Batch) -> str:
    wanted = {"chunks": tuple, "admit": int, "max_steps": int, "decode": bool, "interruptible": bool}
    for name, kind in wanted.items():
        if type(value := getattr(batch, name)) is not kind:
            return f"{name} is a {kind.__name__} and no {type(value).__name__}"
    if batch.max_steps < 1:
        return f"max_steps is {batch.max_steps}"
    return wrong_reason(batch.reason)
