"""Lets stage replicas work while they load: each runs its loaded layers, serving replicas run the rest.

As for whole instances, a ``LivePair`` per loading replica decides which replica runs what. The loading
replica begins a batch from the stage's queue and runs its layers as they load. An idle serving replica pulls
the earliest batch with a finished layer, with its activations, and runs the other layers.
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
        """Requests of the replica's next pass at most."""

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
        """Let a replica run layers with the holder's activations; None: each request's own source."""

    def passed(
        self, stage: Stage, batch: Sequence[Waiting], replica: int, began_ns: int, actions: list[Action]
    ) -> None:
        """These requests have passed the stage."""

    def again(self, batch: Sequence[Waiting], actions: list[Action]) -> None:
        """Restart these requests at the first stage."""

    def feed(self, actions: list[Action]) -> None:
        """Let idle replicas of all stages take waiting requests."""


class _Begun(NamedTuple):
    """A batch: its requests as they reached the stage, and when its first layer was requested."""

    members: tuple[Waiting, ...]
    began_ns: int


class StageLive:
    """Live work of one model. ``pairs``: by loading replica; ``claims``: serving replicas that wait until a
    loading one ends its current layer. ``requests``: number begun by replicas while they loaded.
    """

    __slots__ = ("_begun", "_engines", "_host", "_present", "_runs", "claims", "pairs", "requests")

    def __init__(self, engines: Mapping[int, Engine], host: LayerHost, present: Present) -> None:
        self._engines, self._host, self._present = engines, host, present
        self._begun: dict[LiveBatch, _Begun] = {}
        self._runs: dict[int, tuple[LivePair, LiveBatch]] = {}  # what replicas run
        self.pairs: dict[int, LivePair] = {}
        self.claims: set[int] = set()
        self.requests = 0

    def begin(self, target: int) -> None:
        """The parameters of a stage begin to load."""
        self.pairs[target] = LivePair(target, len(self._engines[target].replica.part))

    def loads(self, target: int) -> bool:
        """Whether the replica is loading, or finishes what it began while it loaded."""
        return target in self.pairs

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """Record loaded layers. The last one, with what follows it, counts once the target serves."""
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

    def _of(self, stage: Stage) -> list[LivePair]:
        """The pairs of a stage, in the order in which their loads began."""
        return [pair for pair in self.pairs.values() if self._engines[pair.target].replica.part == stage.part]

    def waiting(self) -> list[Waiting]:
        """Requests of begun batches that no serving replica has."""
        members = list[Waiting]()
        for batch, one in self._begun.items():
            passes = self._host.stage_of(self._engines[batch.target].replica).passes
            if batch.where == "waiting" or (batch.where == "running" and batch.target not in passes):
                members += one.members
        return members

    def outstanding(self, target: int) -> int:
        """Requests that the target has begun and that have not passed the stage."""
        pair = self.pairs.get(target)
        return 0 if pair is None else sum([len(one.requests) for one in pair.batches])

    def is_between(self, replica: int) -> bool:
        """Whether the replica waits for a layer that it claims, or runs one that another replica claims."""
        run = self._runs.get(replica)
        return replica in self.claims or (run is not None and run[1].where == "claimed")

    def joined(self, stage: Stage, replica: int) -> None:
        """The replica serves; its current pass becomes an ordinary one unless another replica claims it."""
        run = self._runs.get(replica)
        if run is not None and run[1].where == "running":
            stage.begin(replica, StagePass(*self._begun[run[1]]))

    # Running layers.

    def pull(self, stage: Stage, actions: list[Action]) -> None:
        """Let idle serving replicas pull begun batches, before they take from the queue."""
        for replica in sorted(stage.idle):
            for pair in self._of(stage):
                if pair.target != replica and self._pull(stage, pair, replica, actions):
                    break

    def _pull(self, stage: Stage, pair: LivePair, source: int, actions: list[Action]) -> bool:
        batch = pair.offer()
        if batch is None:
            return False
        stage.begin(source, StagePass(self._begun[batch].members, self._present.now_ns))
        layer_pass = pair.pull(source, batch)
        if batch.where == "claimed":
            self.claims.add(source)
        else:
            self._run(stage, pair, layer_pass or self._moved(pair, batch), actions)
        return True

    def _moved(self, pair: LivePair, batch: LiveBatch) -> LivePass:
        """Move a batch: its activations are inputs of the serving replica's pass."""
        self.claims.discard(batch.source)
        layer_pass = pair.activations_arrived(batch)
        assert layer_pass is not None, "a batch that moves has layers left"
        return layer_pass

    def work(self, stage: Stage, actions: list[Action]) -> None:
        """Let loading replicas run the layers that they have; later they finish what they have begun."""
        for pair in self._of(stage):
            target = pair.target
            if target in self._runs or self._engines[target].layer_pass is not None or not pair.may_work:
                continue
            if pair.fully_loaded and target not in stage.idle:
                continue
            layer_pass = pair.work(partial(self._fetch, stage, target))
            for batch in pair.batches:
                if batch not in self._begun:
                    self._note(stage, batch)
            if layer_pass is None:
                continue
            if target in stage.idle:
                stage.begin(target, StagePass(self._begun[layer_pass.batch].members, self._present.now_ns))
            self._run(stage, pair, layer_pass, actions)

    def _fetch(self, stage: Stage, target: int) -> tuple[tuple[Request, ...], int | None]:
        """A new batch from the queue; ``_note`` removes it from the queue."""
        most = min(self._host.most_of(target), len(stage.queue))
        return tuple([stage.queue[at].request for at in range(most)]), None

    def _note(self, stage: Stage, batch: LiveBatch) -> None:
        members = tuple([stage.queue.popleft() for _ in batch.requests])
        self._begun[batch] = _Begun(members, self._present.now_ns)
        self.requests += len(members)

    def _run(self, stage: Stage, pair: LivePair, layer_pass: LivePass, actions: list[Action]) -> None:
        batch, first = layer_pass.batch, stage.part.first
        self._runs[layer_pass.replica] = pair, batch
        holder = batch.target if layer_pass.first else None
        layers = first + layer_pass.first, first + layer_pass.last
        members = self._begun[batch].members
        self._host.run(stage, layer_pass.replica, members, layers=layers, holder=holder, actions=actions)

    def ran(self, stage: Stage, engine: Engine, event: Ran, actions: list[Action]) -> bool:
        """Handle the end of a pass that ran layers of a begun batch; False: it was another pass."""
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
            self._drop(stage, pair, batch)
            self._host.again(members, actions)
        elif batch.where == "moving":
            self._run(stage, pair, self._moved(pair, batch), actions)
        elif batch.where == "over":
            self._drop(stage, pair, batch)
            self._host.passed(stage, members, engine.id, began_ns, actions)
        return True

    def _drop(self, stage: Stage, pair: LivePair, batch: LiveBatch) -> None:
        """Forget a batch that has passed the stage or begins again."""
        if batch in pair.batches:
            pair.batches.remove(batch)
        if batch.source in self.claims:
            self.claims.discard(batch.source)
            stage.ended(batch.source)
        del self._begun[batch]
        self._remove_if_complete(pair)

    # Losses.

    def lost(self, stage: Stage, replica: int) -> list[Waiting]:
        """A replica is lost; returns the requests that begin again because of it."""
        back = list[Waiting]()
        run = self._runs.pop(replica, None)
        if run is not None:
            self._host.seats.end(replica)
        if (run is not None or replica in self.claims) and replica in stage.passes:
            stage.ended(replica)
        self.claims.discard(replica)
        if (own := self.pairs.pop(replica, None)) is not None:
            for batch in [one for one in own.batches if one.where != "pulled"]:
                back += self._begun[batch].members
                self._drop(stage, own, batch)
        for pair in self.pairs.values():
            pair.source_lost(replica)
        if run is not None and run[1] in self._begun and run[0].target not in self.pairs:
            back += self._begun[run[1]].members
            self._drop(stage, *run)
        return back
