"""What a batcher sees and what it answers. The engine applies the answer; the batcher changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serving.actions import Chunk
    from serving.engine import Engine


class Batch(NamedTuple):
    """The next pass of one replica.

    ``preempt`` newest first; ``chunks`` in running order, the last ``admit`` of them for the first ``admit``
    requests of the queue. ``decode`` says whether the resident set takes part. ``max_steps`` > 1 only
    without chunks. ``interruptible``: whether a new arrival could change this decision before the pass ends.
    """

    preempt: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    admit: int
    decode: bool
    max_steps: int
    interruptible: bool
    reason: str


class Waiting(NamedTuple):
    """A queued request: ``tokens`` is everything to compute before it samples its next token."""

    request: int
    tokens: int


class Prefilling(NamedTuple):
    """An admitted request whose prompt is only partly computed."""

    request: int
    start: int
    tokens: int


class ReplicaView:
    """Read-only window on one engine; always current, nothing is copied.

    A batcher is asked at step boundaries only. It must answer the same for as long as only decoding goes
    on and blocks stay: a declined queue head stays declined until a request finishes, leaves or arrives.
    """

    __slots__ = ("_engine", "_ledger")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ledger = engine.ledger

    @property
    def only_decodes(self) -> bool:
        """Nobody waits and no prompt is in progress."""
        engine = self._engine
        return not engine.waiting and not engine.prefilling

    @property
    def free_blocks(self) -> int:
        """KV blocks nobody holds."""
        return self._ledger.free_blocks

    @property
    def watermark_blocks(self) -> int:
        """Blocks a new admission must leave free (prefill-first engines)."""
        return self._ledger.watermark_blocks

    @property
    def running(self) -> int:
        """Admitted requests, decoding or prefilling."""
        return len(self._engine.running)

    @property
    def decoding(self) -> int:
        """Requests that decode in the next step."""
        return self._ledger.decoding

    @property
    def waiting(self) -> int:
        """Length of the queue."""
        return len(self._engine.waiting)

    def blocks_for(self, tokens: int) -> int:
        """Blocks for ``tokens`` positions."""
        return self._ledger.blocks_for(tokens)

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds."""
        return self._ledger.held_blocks(request)

    def step_blocks(self) -> int:
        """Blocks the next decode step takes."""
        return self._ledger.step_blocks()

    def takes_block_next_step(self, request: int) -> bool:
        """Whether this request is among those that take one."""
        return self._ledger.takes_block_next_step(request)

    def steps_until_full(self) -> int:
        """Decode steps that surely have blocks, as things stand."""
        return self._ledger.steps_until_full()

    def is_decoding(self, request: int) -> bool:
        """Whether an admitted request has its whole prompt computed."""
        return request not in self._engine.prefilling

    def prefilling(self) -> Iterator[Prefilling]:
        """Partly computed requests, in running order."""
        for progress in self._engine.prefilling.values():
            start = progress.computed
            yield Prefilling(progress.request.id, start, progress.known_tokens - start)

    def queue(self) -> Iterator[Waiting]:
        """Waiting requests from the head."""
        for progress in self._engine.waiting:
            yield Waiting(progress.request.id, progress.known_tokens)

    def newest_first(self) -> Iterator[int]:
        """Admitted requests, the last admitted first."""
        return reversed(self._engine.running)


class Batcher(Protocol):
    """Chooses the next pass of a replica."""

    def choose(self, view: ReplicaView) -> Batch | None:
        """The next pass, or None when there is nothing to run."""
