"""One stage of a pipeline: a part of a model, the requests waiting for it, and its replicas."""

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from serving.engine.fleet import Dispatcher, Fleet, dispatched
from serving.services.stages.stage_counts import StageCounts
from serving.vocabulary.layers import Part
from serving.vocabulary.request import Request

StageQueues = Literal["stage", "replica"]
NOBODY = -1
NEVER_NS = 1 << 62


class Waiting(NamedTuple):
    """A request that waits for a stage. ``source``: the replica that has its activations, or ``NOBODY``.

    ``until_ns``: when it times out if no replica has taken it.
    """

    request: Request
    source: int
    since_ns: int
    until_ns: int = NEVER_NS


class StagePass(NamedTuple):
    """The pass that a replica runs now."""

    batch: tuple[Waiting, ...]
    began_ns: int


class Stage:
    """Queues and replicas of one stage.

    ``queue``: waiting requests that no replica has been chosen for. ``own``: with one queue per replica,
    these queues. ``idle``: replicas that can begin a pass at once. ``passes``: the pass of each replica that
    runs one or waits for the inputs of one.
    """

    __slots__ = (
        "_dispatcher", "_per_replica", "counts", "fleet", "idle", "index", "own", "part", "passes", "queue",
    )  # fmt: skip

    def __init__(
        self, index: int, part: Part, fleet: Fleet, dispatcher: Dispatcher, queues: StageQueues
    ) -> None:
        self.index = index
        self.part = part
        self.fleet = fleet
        self._dispatcher = dispatcher
        self._per_replica = queues == "replica"
        self.queue: deque[Waiting] = deque()
        self.own: dict[int, deque[Waiting]] = {}
        self.idle: set[int] = set()
        self.passes: dict[int, StagePass] = {}
        self.counts = StageCounts()

    @property
    def queued(self) -> int:
        """Requests that wait for the stage."""
        return len(self.queue) + sum([len(own) for own in self.own.values()])

    def waiting(self) -> list[Waiting]:
        """All waiting requests."""
        return [*self.queue, *(waiting for own in self.own.values() for waiting in own)]

    def add(self, waiting: Waiting, first: bool = False) -> None:
        """Queue a request; ``first``: before all others, in the common queue."""
        if self._per_replica and self.fleet.replicas:
            replica, _ = dispatched(self._dispatcher, waiting.request, self.fleet)
            self.fleet.assigned(replica, waiting.request)
            self.own.setdefault(replica, deque()).append(waiting)
        elif first:
            self.queue.appendleft(waiting)
        else:
            self.queue.append(waiting)

    def can_begin(self) -> list[int]:
        """Idle replicas with waiting requests."""
        if self._per_replica:
            return [replica for replica in self.idle if self.own.get(replica)]
        return list(self.idle) if self.queue else []

    def take(self, replica: int, most: int, now_ns: int) -> StagePass:
        """Let an idle replica begin a pass of at most this many requests."""
        queue = self.own[replica] if self._per_replica else self.queue
        batch = tuple([queue.popleft() for _ in range(min(most, len(queue)))])
        if not self._per_replica:
            for waiting in batch:
                self.fleet.assigned(replica, waiting.request)
        self.idle.remove(replica)
        stage_pass = self.passes[replica] = StagePass(batch, now_ns)
        return stage_pass

    def begin(self, replica: int, stage_pass: StagePass) -> None:
        """Let a replica run layers of a batch that another replica began."""
        for waiting in stage_pass.batch:
            self.fleet.assigned(replica, waiting.request)
        self.idle.discard(replica)
        self.passes[replica] = stage_pass

    def ended(self, replica: int) -> StagePass:
        """End the replica's pass."""
        stage_pass = self.passes.pop(replica)
        for waiting in stage_pass.batch:
            self.fleet.departed(replica, waiting.request)
        if replica in self.fleet:
            self.idle.add(replica)
        return stage_pass

    def opened(self) -> list[Waiting]:
        """Take back requests that waited while the stage had no replica; the caller adds them again."""
        if not (self._per_replica and self.queue and self.fleet.replicas):
            return []
        waiting = list(self.queue)
        self.queue.clear()
        return waiting

    def timed_out(self, now_ns: int) -> list[Waiting]:
        """Remove and return the requests at the head of each queue that wait no longer."""
        ended: list[Waiting] = []
        while self.queue and self.queue[0].until_ns <= now_ns:
            ended.append(self.queue.popleft())
        for replica, own in self.own.items():
            while own and own[0].until_ns <= now_ns:
                waiting = own.popleft()
                self.fleet.departed(replica, waiting.request)
                ended.append(waiting)
        return ended

    def close(self, replica: int) -> list[Waiting]:
        """Stop giving a replica requests; returns those that waited for it alone, to be added again."""
        self.idle.discard(replica)
        waiting = list(self.own.pop(replica, ()))
        for request in waiting:
            self.fleet.departed(replica, request.request)
        return waiting

    def without(self, source: int) -> list[Waiting]:
        """Remove and return requests whose activations were on a lost replica."""
        removed = [waiting for waiting in self.waiting() if waiting.source == source]
        for replica, own in self.own.items():
            for waiting in own:
                if waiting.source == source:
                    self.fleet.departed(replica, waiting.request)
            self.own[replica] = _without_source(own, source)
        self.queue = _without_source(self.queue, source)
        return removed


def _without_source(queue: Iterable[Waiting], source: int) -> deque[Waiting]:
    return deque([waiting for waiting in queue if waiting.source != source])
