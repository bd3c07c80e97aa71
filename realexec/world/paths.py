"""Rounds of batches over workers that each have one stage of a language model.

A batch passes the workers of its path one after the other. The driver tells each of them once that rounds
begin; from then on each worker sends the turn to the next (`worker/stage_work.py`). As in a simulation, the
last worker reports its rounds when a decision is due: a request has ended, a prompt is computed, the allowed
rounds are done, or the driver interrupts.
"""

from dataclasses import dataclass, field

from realexec.wire.messages import RoundsDone, RunRounds, StepsDone, StopRounds
from realexec.wire.stage_costs import StageCosts
from realexec.world.holders import Holders
from realexec.world.slots import Slots
from realexec.world.tracking import Tracker
from serving.vocabulary.actions import Run, Span
from serving.vocabulary.events import Ran


@dataclass(slots=True)
class RoundBatch:
    """A batch. ``newest``: for each request that decodes, the last token reported."""

    run: Run
    newest: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class RoundsInFlight:
    """Rounds that workers run, since ``since_ns``."""

    batch: RoundBatch
    since_ns: int


class PathRuns:
    """All batches in rounds. ``passes``, ``activation_bytes``, ``stages`` (layer ranges): for the report."""

    def __init__(self, slots: Slots, holders: Holders, tracker: Tracker) -> None:
        self._slots, self._holders, self._tracker = slots, holders, tracker
        self._batches: dict[int, RoundBatch] = {}
        self._flying: dict[int, RoundsInFlight] = {}
        self._heard_ns: dict[int, int] = {}  # of each replica
        self._orders = 0
        self.passes = 0
        self.activation_bytes = 0
        self.stages: set[Span] = set()

    def __len__(self) -> int:
        return len(self._flying)

    def has(self, replica: int) -> bool:
        """Whether this replica runs passes of batches."""
        return any(replica in other.run.path for other in self._batches.values())

    def begin(self, run: Run, now_ns: int) -> None:
        """Begin or continue rounds of a batch; batch numbers are reused after a batch has ended."""
        for request, _, _ in run.chunks:
            for replica in run.path:
                self._holders.hold(request, self._slots.of(replica))
        batch = self._batches.get(run.micro_batch)
        if batch is None or batch.run.path != run.path:
            batch = self._batches[run.micro_batch] = RoundBatch(run)
        batch.run = run
        number, self._orders = self._orders, self._orders + 1
        self._flying[number] = RoundsInFlight(batch, now_ns)
        path = tuple([(self._slots.of(stage), *self._layers_of(stage)) for stage in run.path])
        decode = tuple(batch.newest.items())
        rounds = 1 if run.chunks else run.max_steps
        message = RunRounds(
            number=number, batch=run.micro_batch, path=path, chunks=run.chunks, decode=decode, rounds=rounds
        )
        for replica in reversed(run.path):  # the first stage last, so that the others have the order by then
            self._slots.tell(replica, message)

    def _layers_of(self, replica: int) -> Span:
        layers = self._slots.layers_of(replica)
        assert layers is not None, "a replica on a path is a stage"
        self.stages.add(layers)
        return layers

    def interrupt(self) -> None:
        """Have the next round that ends reported, of any batch. If paths end in several workers, each of them
        reports its next round."""
        ends = [rounds.batch.run.path[-1] for rounds in self._flying.values()]
        for replica in dict.fromkeys(ends):
            self._slots.tell(replica, StopRounds())

    def done(self, slot: int, message: RoundsDone, start_ns: int) -> Ran | None:
        """Handle a report of rounds; None if it causes no event. ``start_ns``: machine time of time 0."""
        rounds = self._flying.pop(message.number, None)
        if rounds is None:
            return None  # its path was lost meanwhile
        if message.cause:  # the peer that this worker could not read or reach is alive
            self._slots.end(slot)
            return None
        batch, run = rounds.batch, rounds.batch.run
        costs = [StageCosts(*each) for each in message.costs]
        for replica, each in zip(run.path[:-1], costs):
            self._tracker.computed(replica, each.busy_ns)
        self.activation_bytes += sum(each.read_bytes for each in costs)
        self.passes += len(message.ends_ns) * len(run.path)
        # The last stage waited for the others between its passes.
        began_ns = message.ends_ns[-1] - costs[-1].busy_ns
        steps = StepsDone(
            epoch=0,
            started_ns=began_ns,
            ends_ns=message.ends_ns,
            tokens=message.tokens,
            finished=message.finished,
            running=False,
        )
        self._tracker.ran(run.path[-1], steps, start_ns)
        self._ended(batch, message)
        return Ran(
            run.replica, run.epoch, len(message.ends_ns), message.finished, micro_batch=run.micro_batch
        )

    def _ended(self, batch: RoundBatch, message: RoundsDone) -> None:
        """Store the reported tokens, and end finished requests."""
        last = self._slots.of(batch.run.path[-1])
        for request, tokens in message.tokens.items():
            batch.newest[request] = tokens[-1]
        for request in message.finished:
            del batch.newest[request]
            self._holders.end(request, last)

    def lose(self, replica: int) -> None:
        """Drop all batches whose path includes a lost replica."""
        for number in [other for other, batch in self._batches.items() if replica in batch.run.path]:
            batch = self._batches.pop(number)
            self._flying = {
                rounds: flying for rounds, flying in self._flying.items() if flying.batch is not batch
            }

    def heard(self, replica: int, now_ns: int) -> None:
        """Note that a replica reported that its passes go on."""
        self._heard_ns[replica] = now_ns

    def silent(self, now_ns: int, patience_ns: int) -> list[int]:
        """Replicas on paths of rounds unreported for ``patience_ns``, if they sent nothing else either. They
        are not returned again for as long. If one hangs, replicas that wait for it are returned too."""
        late = [rounds for rounds in self._flying.values() if now_ns - rounds.since_ns >= patience_ns]
        paths = dict.fromkeys(replica for rounds in late for replica in rounds.batch.run.path)
        silent = [one for one in paths if now_ns - self._heard_ns.get(one, 0) >= patience_ns]
        for replica in silent:
            self._heard_ns[replica] = now_ns
        return silent
