"""What a batcher sees and answers. The engine applies the answer; the batcher changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from serving.protocols.policy_faults import Question, raised, refused
from serving.vocabulary.actions import Chunk


class Batch(NamedTuple):
    """The next pass of one replica.

    ``preempt``: newest first. ``chunks``: in running order; the last ``admit`` of them belong to the first
    ``admit`` requests of the queue. ``decode`` and ``max_steps``: as in serving.vocabulary.actions.Run.
    ``interruptible``: True if no request waits and fewer than ``max_num_seqs`` run. Then an arrival changes
    this decision and a finish does not. Otherwise the pass ends when a request finishes.
    """

    preempt: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    admit: int
    decode: bool
    max_steps: int
    interruptible: bool
    reason: str


class ProgressView(Protocol):
    """One request on a replica. During prefill, ``computed`` of its ``known_tokens`` are in KV memory.

    ``known_tokens``: prompt and generated tokens; not updated while the request decodes. ``priority``: larger
    is more urgent; 0 for all requests if the engines ignore priorities. ``swapped``: the request's KV is in
    host memory; the engine lets it decode again when there is room, and starts no prompt before it.
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
    """What waiting requests would find in KV memory (serving.engine.admissions), one request at a time.

    ``growing``: the last request passed to ``find`` may find more after every step of the decoding requests.
    """

    @property
    def growing(self) -> bool: ...

    def find(self, progress: ProgressView, free_blocks: int) -> tuple[int, int]: ...

    def admit(self, progress: ProgressView, start: int, tokens: int) -> int: ...


class KvView(Protocol):
    """Read-only view of the replica's KV memory (serving.engine.kv_ledger.KvLedger).

    A request holds ``sequence_blocks`` blocks besides those of its tokens, from its first chunk on.
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
    """Read-only view of one engine; always current, nothing is copied.

    ``running``: the admitted requests in order of admission. ``prefilling``: those of them whose prompt is
    not complete. ``waiting``: the queue. ``by_priority``: whether priorities count. Under asynchronous
    scheduling ``running`` also has the requests that have just finished: they count and hold their memory for
    one step more, and decode nothing. ``most_running``: a scaler's limit on the requests that run here, which
    counts beside the batcher's own.

    The engine calls a batcher at step boundaries only. The batcher must give the same answer for as long as
    only decoding goes on: a declined queue head stays declined until a request finishes, leaves or arrives.
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
    """Chooses the next pass of a replica."""

    def choose(self, view: ReplicaView) -> Batch | None:
        """Return the next pass, or None if there is nothing to run."""


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
