"""Lets a stage's loading replicas run the layers that they have; its serving replicas run the other layers.

Each loading replica has a ``LivePair``, which decides which replica runs which layers of a batch. The loading
replica takes a batch from the stage's queue and runs layers of it as they load. An idle serving replica pulls
the earliest batch that has a finished layer, together with its activations, and runs its other layers.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from serving.engine.engine import Engine
from serving.live.pairs import LiveBatch, LivePair, LivePass
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import Stage, StagePass, Waiting
from serving.vocabulary.actions import Action, Span
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


class LayerHost(Protocol):
    """The service that owns the stages."""

    seats: GpuSeats

    def stage_of(self, replica: Replica) -> Stage:
        """The stage of this replica."""

    def most_of(self, replica: int) -> int:
        """The maximum number of requests in the replica's next pass."""

    def run(
        self,
        stage: Stage,
        replica: int,
        batch: Sequence[Waiting],
        *,
        layers: Span,
        holder: int | None,
        actions: list[Action],
    ) -> None:
        """Let a replica run layers of a batch.

        ``holder``: the replica that has the activations; None: the sources of the requests have them.
        """

    def passed(
        self, stage: Stage, batch: Sequence[Waiting], replica: int, began_ns: int, actions: list[Action]
    ) -> None:
        """Continue with requests that have passed the stage."""

    def again(self, batch: Sequence[Waiting], actions: list[Action]) -> None:
        """Restart these requests at the first stage."""

    def feed(self, actions: list[Action]) -> None:
        """Let idle replicas of all stages take waiting requests."""


class _Begun(NamedTuple):
    """``members``: a batch's requests in the order of their arrival at the stage.

    ``began_ns``: when a loading replica took the batch from the queue.
    """

    members: tuple[Waiting, ...]
    began_ns: int


class StageLive:
    """Live work of one model.

    ``pairs``: one for each loading replica, by its number. ``claims``: serving replicas that wait until a
    loading replica ends its current layer. ``requests``: number of requests that replicas took while loading.
    """

    __slots__ = ("_begun", "_engines", "_host", "_present", "_runs", "claims", "pairs", "requests")

    def __init__(self, engines: Mapping[int, Engine], host: LayerHost, present: Present) -> None:
        self._engines, self._host, self._present = engines, host, present
        self._begun: dict[LiveBatch, _Begun] = {}
        self._runs: dict[int, tuple[LivePair, LiveBatch]] = {}  # the batch that each replica runs
        self.pairs: dict[int, LivePair] = {}
        self.claims: set[int] = set()
        self.requests = 0

    def begin(self, target: int) -> None:
        """Create a pair for a replica whose parameters begin to load."""
        self.pairs[target] = LivePair(target, len(self._engines[target].replica.part))

    def loads(self, target: int) -> bool:
        """Whether the replica is loading, or batches that it took while loading are not finished."""
        return target in self.pairs

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """Record loaded layers; the last layer may be run only once the whole load is complete."""
        pair = self.pairs[target]
        pair.layers_loaded(layers if fully_loaded else max(pair.loaded, min(layers, pair.layers - 1)))
        self._remove_if_complete(pair)
        if not fully_loaded:
            self._host.feed(actions)

    def stop(self, target: int, actions: list[Action]) -> None:
        """Stop a load: serving replicas finish the batches that it began."""
        self.pairs[target].stop()
        self._remove_if_complete(self.pairs[target])
        self._host.feed(actions)

    def _remove_if_complete(self, pair: LivePair) -> None:
        if pair.is_complete:
            self.pairs.pop(pair.target, None)

    def _pairs_of(self, stage: Stage) -> list[LivePair]:
        """The pairs of a stage, in the order in which their loads began."""
        return [pair for pair in self.pairs.values() if self._engines[pair.target].replica.part == stage.part]

    def waiting(self) -> list[Waiting]:
        """Requests of live batches that no pass of the stage contains."""
        members = list[Waiting]()
        for batch, begun in self._begun.items():
            passes = self._host.stage_of(self._engines[batch.target].replica).passes
            if batch.where == "waiting" or (batch.where == "running" and batch.target not in passes):
                members += begun.members
        return members

    def outstanding(self, target: int) -> int:
        """Number of requests that the target took while loading and that have not passed the stage."""
        pair = self.pairs.get(target)
        return 0 if pair is None else sum([len(batch.requests) for batch in pair.batches])

    def is_between(self, replica: int) -> bool:
        """Whether the replica waits to pull a claimed batch, or runs the last layer before one is pulled."""
        run = self._runs.get(replica)
        return replica in self.claims or (run is not None and run[1].where == "claimed")

    def joined(self, stage: Stage, replica: int) -> None:
        """The loaded replica serves: its current pass becomes a pass of the stage unless it is claimed."""
        run = self._runs.get(replica)
        if run is not None and run[1].where == "running":
            stage.begin(replica, StagePass(*self._begun[run[1]]))

    # Running layers.

    def pull(self, stage: Stage, actions: list[Action]) -> None:
        """Let idle serving replicas pull live batches, before they take requests from the queue."""
        for replica in sorted(stage.idle):
            for pair in self._pairs_of(stage):
                if pair.target != replica and self._pull_batch(stage, pair, replica, actions):
                    break

    def _pull_batch(self, stage: Stage, pair: LivePair, source: int, actions: list[Action]) -> bool:
        batch = pair.offer()
        if batch is None:
            return False
        stage.begin(source, StagePass(self._begun[batch].members, self._present.now_ns))
        layer_pass = pair.pull(source, batch)
        if batch.where == "claimed":
            self.claims.add(source)
        else:
            self._run_layers(stage, pair, layer_pass or self._move_batch(pair, batch), actions)
        return True

    def _move_batch(self, pair: LivePair, batch: LiveBatch) -> LivePass:
        """Give a batch to the serving replica that claimed it; returns the pass that this replica runs."""
        self.claims.discard(batch.source)
        layer_pass = pair.activations_arrived(batch)
        assert layer_pass is not None, "a batch that moves has layers left"
        return layer_pass

    def work(self, stage: Stage, actions: list[Action]) -> None:
        """Let the targets of pairs run the next layers of their batches, where these are loaded."""
        for pair in self._pairs_of(stage):
            target = pair.target
            if target in self._runs or self._engines[target].layer_pass is not None or not pair.may_work:
                continue
            if pair.fully_loaded and target not in stage.idle:
                continue
            layer_pass = pair.work(partial(self._next_batch, stage, target))
            for batch in pair.batches:
                if batch not in self._begun:
                    self._take_from_queue(stage, batch)
            if layer_pass is None:
                continue
            if target in stage.idle:
                stage.begin(target, StagePass(self._begun[layer_pass.batch].members, self._present.now_ns))
            self._run_layers(stage, pair, layer_pass, actions)

    def _next_batch(self, stage: Stage, target: int) -> tuple[tuple[Request, ...], int | None]:
        """The requests of a new batch, still in the queue, and its quota of layers, which is None."""
        count = min(self._host.most_of(target), len(stage.queue))
        return tuple([stage.queue[at].request for at in range(count)]), None

    def _take_from_queue(self, stage: Stage, batch: LiveBatch) -> None:
        members = tuple([stage.queue.popleft() for _ in batch.requests])
        self._begun[batch] = _Begun(members, self._present.now_ns)
        self.requests += len(members)

    def _run_layers(self, stage: Stage, pair: LivePair, layer_pass: LivePass, actions: list[Action]) -> None:
        batch, first = layer_pass.batch, stage.part.first
        self._runs[layer_pass.replica] = pair, batch
        holder = batch.target if layer_pass.first else None
        layers = first + layer_pass.first, first + layer_pass.last
        members = self._begun[batch].members
        self._host.run(stage, layer_pass.replica, members, layers=layers, holder=holder, actions=actions)

    def ran(self, stage: Stage, engine: Engine, event: Ran, actions: list[Action]) -> bool:
        """Handle the end of a pass over layers of a live batch; returns False if it was another pass."""
        run = self._runs.pop(engine.id, None)
        if run is None:
            return False
        pair, batch = run
        members, began_ns = self._begun[batch]
        pair.ended(engine.id)
        if engine.id in stage.passes:
            stage.ended(engine.id)
        elif engine.id in stage.fleet:
            stage.idle.add(engine.id)
        if not event.steps:  # its inputs are lost
            self._remove_batch(stage, pair, batch)
            self._host.again(members, actions)
        elif batch.where == "moving":
            self._run_layers(stage, pair, self._move_batch(pair, batch), actions)
        elif batch.where == "over":
            self._remove_batch(stage, pair, batch)
            self._host.passed(stage, members, engine.id, began_ns, actions)
        return True

    def _remove_batch(self, stage: Stage, pair: LivePair, batch: LiveBatch) -> None:
        """Remove a batch that has passed the stage or whose requests restart at the first stage."""
        if batch in pair.batches:
            pair.batches.remove(batch)
        if batch.source in self.claims:
            self.claims.discard(batch.source)
            stage.ended(batch.source)
        del self._begun[batch]
        self._remove_if_complete(pair)

    # Losses.

    def lost(self, stage: Stage, replica: int) -> list[Waiting]:
        """Handle a lost replica; returns the requests that must restart at the first stage."""
        restarting = list[Waiting]()
        run = self._runs.pop(replica, None)
        if run is not None:
            self._host.seats.end(replica)
        if (run is not None or replica in self.claims) and replica in stage.passes:
            stage.ended(replica)
        self.claims.discard(replica)
        if (lost_pair := self.pairs.pop(replica, None)) is not None:
            for batch in [batch for batch in lost_pair.batches if batch.where != "pulled"]:
                restarting += self._begun[batch].members
                self._remove_batch(stage, lost_pair, batch)
        for pair in self.pairs.values():
            pair.source_lost(replica)
        if run is not None and run[1] in self._begun and run[0].target not in self.pairs:
            restarting += self._begun[run[1]].members
            self._remove_batch(stage, *run)
        return restarting
