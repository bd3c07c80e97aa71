"""Requests are admitted with the chunks of a batch, and memory is reserved for these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.vocabulary.actions import Chunk

if TYPE_CHECKING:
    from serving.engine.engine import Engine


def admit(engine: Engine, chunks: tuple[Chunk, ...], count: int) -> None:
    """Reserve memory for the chunks; the last ``count`` are of requests that leave the queue with them."""
    ledger = engine.ledger
    prefilling, begun = engine.prefilling, len(chunks) - count
    for request, start, tokens in chunks:
        if begun:
            begun -= 1
            progress = prefilling[request]
        else:
            progress = engine.waiting.popleft()
            assert progress.id == request, "the queue is admitted in order"
            engine.running[request] = prefilling[request] = progress
            if progress.comes_back:
                progress.computed = start
                ledger.resume(request, start)
        assert progress.computed == start, "a chunk starts where the last one ended"
        ledger.reserve(request, start + tokens)
