"""Batches of a language model in stages: rounds over workers that have a stage each, and when they are told.

A batch passes the workers of its path one after the other; the next worker reads what came out of the one
before it. A round that ends is told where something is to be decided, as in a simulation: a request has
ended, a prompt is computed, the rounds allowed are done, an interrupt. Else the next one begins at once.
"""

from dataclasses import dataclass, field

from realexec.messages import RunStage, StageDone, StepsDone
from realexec.tracking import Tracker
from realexec.world.holders import Holders
from realexec.world.slots import Slots
from serving.vocabulary.actions import Chunk, Run, Span
from serving.vocabulary.events import Ran

NOWHERE = -1


@dataclass(slots=True)
class RoundBatch:
    """``newest``: of each request that decodes the last token. ``rounds``: that ended and are not told yet.

    ``left``: rounds that it may yet end before it is told of. ``stage``: that it passes now.
    """

    run: Run
    left: int
    chunks: tuple[Chunk, ...]
    newest: dict[int, int] = field(default_factory=dict)
    rounds: int = 0
    stage: int = 0

    def begin(self, run: Run) -> None:
        """It goes on, after it was told of."""
        self.run, self.chunks, self.rounds, self.stage = run, run.chunks, 0, 0
        self.left = 1 if run.chunks else run.max_steps


@dataclass(slots=True)
class StagePass:
    """One that a worker was asked for. heard_ns: when its worker was last heard of."""

    batch: RoundBatch
    heard_ns: int

    @property
    def replica(self) -> int:
        """That runs it."""
        return self.batch.run.path[self.batch.stage]


class PathRuns:
    """``passes``, ``activation_bytes``, ``stages`` (their layers): of the summary."""

    def __init__(self, slots: Slots, holders: Holders, tracker: Tracker) -> None:
        self._slots, self._holders, self._tracker = slots, holders, tracker
        self._batches: dict[int, RoundBatch] = {}
        self._flying: dict[int, StagePass] = {}
        self._cut = False  # whether the next round to end is to be told
        self.passes = 0
        self.activation_bytes = 0
        self.stages: set[Span] = set()

    def __len__(self) -> int:
        return len(self._flying)

    def has(self, replica: int) -> bool:
        """Whether this replica runs passes of batches."""
        return any(replica in one.run.path for one in self._batches.values())

    def begin(self, run: Run, now_ns: int) -> None:
        """A batch begins rounds, or goes on with them; numbers of batches that have ended are given again."""
        for request, _, _ in run.chunks:
            for replica in run.path:
                self._holders.hold(request, self._slots.of(replica))
        batch = self._batches.get(run.micro_batch)
        if batch is None or batch.run.path != run.path:
            batch = self._batches[run.micro_batch] = RoundBatch(run, 0, ())
        batch.begin(run)
        self._pass(batch, now_ns, NOWHERE, ())

    def interrupt(self) -> None:
        """The next round to end is told, whichever batch's it is."""
        self._cut = bool(self._flying)

    def _pass(self, batch: RoundBatch, now_ns: int, source: int, place: tuple[int, ...]) -> None:
        one = StagePass(batch, now_ns)
        number, layers = self.passes, self._slots.layers_of(one.replica)
        assert layers is not None, "a replica on a path is a stage"
        self.passes += 1
        self.stages.add(layers)
        self._flying[number] = one
        decode = tuple(batch.newest.items())
        what = RunStage(number, batch.run.micro_batch, batch.chunks, decode, layers, source, place)
        self._slots.tell(one.replica, what)

    def done(self, message: StageDone, now_ns: int, start_ns: int) -> Ran | None:
        """A worker tells of a pass; None where nobody is to know. ``start_ns``: machine time of time 0."""
        one = self._flying.pop(message.number, None)
        if one is None:
            return None  # its path was lost meanwhile
        batch = one.batch
        if message.cause:  # the stage before lives, and this one cannot read from it
            self._slots.end(self._slots.of(one.replica))
            return None
        self.activation_bytes += message.read_bytes
        replica, batch.stage = one.replica, batch.stage + 1
        if batch.stage < len(batch.run.path):
            self._tracker.computed(replica, message.ended_ns - message.started_ns)
            self._pass(batch, now_ns, self._slots.of(replica), message.place)
            return None
        ended = (message.ended_ns,)
        how = message.tokens, message.finished, False
        self._tracker.ran(replica, StepsDone(0, message.started_ns, ended, *how), start_ns)
        return self._ended(batch, message, now_ns)

    def _ended(self, batch: RoundBatch, message: StageDone, now_ns: int) -> Ran | None:
        """A round: its requests have their tokens."""
        last = self._slots.of(batch.run.path[-1])
        for request, tokens in message.tokens.items():
            batch.newest[request] = tokens[-1]
        for request in message.finished:
            del batch.newest[request]
            self._holders.end(request, last)
        batch.rounds, batch.left = batch.rounds + 1, batch.left - 1
        batch.chunks, batch.stage = (), 0
        if not (message.finished or batch.left == 0 or self._cut):
            self._pass(batch, now_ns, NOWHERE, ())
            return None
        self._cut, run = False, batch.run
        return Ran(run.replica, run.epoch, batch.rounds, message.finished, micro_batch=run.micro_batch)

    def lose(self, replica: int) -> None:
        """It is gone, and with it all batches whose path it is on."""
        for number in [one for one, batch in self._batches.items() if replica in batch.run.path]:
            batch = self._batches.pop(number)
            self._flying = {one: flying for one, flying in self._flying.items() if flying.batch is not batch}
        self._cut = self._cut and bool(self._flying)

    def silent(self, now_ns: int, patience_ns: int) -> list[int]:
        """Replicas that a pass waits for so long; they are not named again for as long."""
        found = [one for one in self._flying.values() if now_ns - one.heard_ns >= patience_ns]
        for one in found:
            one.heard_ns = now_ns
        return [one.replica for one in found]
