"""What a batcher sees and answers. The engine applies the answer; the batcher changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from serving.protocols.policy_faults import Question, raised, refused
from serving.vocabulary.actions import Chunk


class Batch(NamedTuple):
    """The next pass of one replica.

    ``preempt``: running requests that lose their KV now, newest first. ``chunks``: parts of prompts to
    compute, as (request, first KV position, tokens), in running order; the last ``admit`` of them begin
    waiting requests. ``admit``: requests taken from the head of the queue. ``decode``: whether decoding
    requests make a token in the first step, too. ``max_steps``: steps that may run before the batcher is
    asked again, 1 or more. ``interruptible``: True if an arrival changes this decision and a finish does not;
    else the pass ends when a request finishes.
    """

    preempt: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    admit: int
    decode: bool
    max_steps: int
    interruptible: bool
    reason: str


class ProgressView(Protocol):
    """One request on a replica.

    ``known_tokens``: prompt and generated tokens; not updated while the request decodes. ``computed``: those
    of them that are in KV memory, during prefill. ``was_preempted``: whether it ran before. ``swapped``: its
    KV is in host memory; the engine lets it decode again when there is room, and starts no prompt before it.
    ``shared_prefix``: as in ``Request``.
    """

    @property
    def id(self) -> int: ...

    @property
    def known_tokens(self) -> int: ...

    @property
    def computed(self) -> int: ...

    @property
    def was_preempted(self) -> bool: ...

    @property
    def swapped(self) -> bool: ...

    @property
    def priority(self) -> int: ...

    @property
    def shared_prefix(self) -> tuple[tuple[int, int], ...]: ...


class AdmissionsView(Protocol):
    """What waiting requests would find in KV memory, one request at a time.

    ``growing``: the last request passed to ``find`` may find more after every step of the decoding requests.
    ``find``: (tokens that the request finds, how many of their blocks are free now), with this many blocks
    left in the step. ``admit``: lets the request last looked up begin at ``start`` with a chunk of
    ``tokens``; returns how many of the blocks before ``start`` were free.
    """

    @property
    def growing(self) -> bool: ...

    def find(self, progress: ProgressView, free_blocks: int) -> tuple[int, int]: ...

    def admit(self, progress: ProgressView, start: int, tokens: int) -> int: ...


class KvView(Protocol):
    """The replica's KV memory.

    ``free_blocks``: blocks that nobody holds. ``block_tokens``: tokens of a block. ``watermark_blocks``:
    blocks to keep free at admission. ``sequence_blocks``: blocks that a request holds besides those of its
    tokens. ``decoding``: requests that decode. ``held_blocks``: blocks of a request. ``step_blocks``: new
    blocks that the next decode step takes. ``takes_block_next_step``: whether this request takes one of them.
    ``steps_until_full``: decode steps that surely have blocks, and leave ``spare_blocks`` free. ``decodes``:
    whether a request decodes. ``blocks_freed``: blocks that the last of these requests would free, after the
    others. ``admissions``: what waiting requests would find beside these chunks; None: never anything.
    """

    @property
    def free_blocks(self) -> int: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def watermark_blocks(self) -> int: ...

    @property
    def sequence_blocks(self) -> int: ...

    @property
    def decoding(self) -> int: ...

    def held_blocks(self, request: int) -> int: ...

    def step_blocks(self) -> int: ...

    def takes_block_next_step(self, request: int) -> bool: ...

    def steps_until_full(self, spare_blocks: int = 0) -> int: ...

    def decodes(self, request: int) -> bool: ...

    def blocks_freed(self, victims: tuple[int, ...]) -> int: ...

    def admissions(self, chunks: tuple[Chunk, ...] = (), decodes: bool = True) -> AdmissionsView | None: ...


UNLIMITED: Final = 1 << 30
"""``ReplicaView.most_running`` without a scaler that limits it."""


class Queue(Protocol):
    """Waiting requests, from the head of the queue."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ProgressView]: ...


class ReplicaView:
    """One engine at a step boundary; always current, nothing is copied.

    ``running``: the admitted requests by id, in order of admission. ``prefilling``: those of them whose
    prompt is not complete. ``waiting``: the queue, from its head. ``kv``: its KV memory. ``by_priority``:
    whether priorities count. ``most_running``: a scaler's limit on the requests that run here, beside the
    batcher's own.

    The answer must stay the same as long as only decoding goes on: a declined queue head stays declined until
    a request finishes, leaves or arrives. Under asynchronous scheduling ``running`` also has the requests
    that have just finished: they count and hold their memory for one step more.
    """

    __slots__ = ("_newest", "by_priority", "kv", "most_running", "prefilling", "running", "waiting")

    def __init__(
        self,
        running: Mapping[int, ProgressView],
        prefilling: Mapping[int, ProgressView],
        waiting: Queue,
        kv: KvView,
        *,
        by_priority: bool = False,
        newest: Callable[[], Iterator[int]] | None = None,
    ) -> None:
        """``newest``: the requests that may be preempted, last admitted first; None: all running requests."""
        self._newest, self.most_running = newest, UNLIMITED
        self.running = running
        self.prefilling = prefilling
        self.waiting = waiting
        self.kv = kv
        self.by_priority = by_priority

    def newest_first(self) -> Iterator[int]:
        """Ids of admitted requests, the last admitted first: the order of preemption.

        With ``by_priority``, requests of the lowest priority come first, the last admitted first among them.
        With several micro-batches in flight, only requests that are in no step.
        """
        if self._newest is not None:
            return self._newest()
        if self.by_priority:
            running = self.running
            newest = list(running)[::-1]
            newest.sort(key=lambda request: running[request].priority)
            return iter(newest)
        return reversed(self.running.keys())  # type: ignore[call-overload, no-any-return]


class Batcher(Protocol):
    """Chooses what a replica computes next."""

    def choose(self, view: ReplicaView) -> Batch | None:
        """Asked at step boundaries: the next pass."""


CHOOSE: Final = Question(
    "choose",
    "None when nothing can run, or a Batch: preempt names running requests, chunks continue unfinished "
    "prompts and then start the first `admit` requests of the queue, the free KV blocks suffice for "
    "max_steps, the reason is a str that is not empty",
)


def chosen(policy: Any, view: ReplicaView) -> Batch | None:
    """Ask the batcher. ``serving.engine.batch_answers`` checks the answer's content. Raises PolicyError."""
    try:
        answer = policy.choose(view)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(policy, CHOOSE, error) from error
    if answer is None:
        return None
    fields: Any = answer
    if type(answer) is not Batch:
        raise refused(policy, CHOOSE, answer, f"the answer is a {type(answer).__name__}")
    if type(fields[0]) is not tuple:
        raise refused(policy, CHOOSE, answer, "preempt is not a tuple of request ids")
    return answer
