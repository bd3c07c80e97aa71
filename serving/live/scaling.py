"""The live pairs of one model: which targets work while they load, and what happens to their batches.

``LivePair`` decides about one target; this module turns decisions into passes, transfers and memory.
``LiveHost`` contains what differs between models with and without handover.
"""

from collections.abc import Container, Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.layer_pass import LayerPass
from serving.engine.progress import Progress
from serving.kv.moves import Moves
from serving.kv.pieces import Piece
from serving.kv.transfer_ids import TransferIds
from serving.live.host import LiveCounts, LiveHost, LiveSetup
from serving.live.pairs import LiveBatch, LivePair, LivePass
from serving.live.plans import LivePlans
from serving.protocols.live import LiveChoice, LiveTarget
from serving.vocabulary.actions import Action, Assign, Send, StopSend
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.request import Request

# Passes over some layers of live batches, from the order to an engine until its report.


class LayerRuns:
    """Which replica runs layers of which batch. ``layers``: number of layers of the model."""

    __slots__ = ("_counts", "_engines", "_layers", "_running")

    def __init__(self, engines: Mapping[int, Engine], layers: int, counts: LiveCounts) -> None:
        self._engines = engines
        self._layers = layers
        self._counts = counts
        self._running: dict[int, LiveBatch] = {}

    def begin(self, layer_pass: LivePass, pair: LivePair, actions: list[Action]) -> None:
        """Order a pass for this pair from an engine."""
        batch = layer_pass.batch
        if layer_pass.replica == batch.target and not pair.fully_loaded:
            self._counts.passes += 1
            self._counts.layer_counts.add(pair.loaded)
            self._counts.requests += 0 if layer_pass.first else len(batch.requests)
        self._running[layer_pass.replica] = batch
        chunks = tuple([(request.id, 0, request.prompt_tokens) for request in batch.requests])
        why = f"live: {pair.loaded} of {self._layers} layers are on {batch.target}"
        self._engines[layer_pass.replica].run_layers(
            LayerPass(chunks, (layer_pass.first, layer_pass.last), why), actions
        )

    def ended(self, engine: Engine) -> LiveBatch:
        """Handle an engine's report of its pass; returns the batch."""
        engine.layers_ran()
        return self._running.pop(engine.id)

    def lost(self, replica: int) -> LiveBatch | None:
        """Handle a lost replica; returns the batch whose layers it ran."""
        return self._running.pop(replica, None)

    def at(self, replica: int) -> LiveBatch | None:
        """The batch whose layers a replica is running."""
        return self._running.get(replica)


# Transfers of live batches: the activations after the last layer that ran, or the embedded prompts.


class Activations:
    """Transfers of one model's batches. ``bytes_per_token``: between two layers."""

    __slots__ = ("_bytes_per_token", "_model", "_moving", "_transfer_ids")

    def __init__(self, model: str, bytes_per_token: int, transfer_ids: TransferIds) -> None:
        self._model = model
        self._bytes_per_token = bytes_per_token
        self._transfer_ids = transfer_ids
        self._moving: dict[int, LiveBatch] = {}

    def send(self, source: int, target: int, batch: LiveBatch, why: str, actions: list[Action]) -> None:
        """Send a batch's activations from one instance to the other."""
        transfer = self._transfer_ids.begin(self._model)
        self._moving[transfer] = batch
        ids = tuple([request.id for request in batch.requests])
        size_bytes = batch.tokens * self._bytes_per_token
        actions.append(
            Send(
                transfer,
                "activations",
                requests=ids,
                source=source,
                target=target,
                size_bytes=size_bytes,
                reason=why,
            )
        )

    def activations_arrived(self, transfer: int) -> LiveBatch | None:
        """The batch of this transfer; None if it belongs to no batch, or the batch no longer needs it."""
        return self._moving.pop(transfer, None)

    def stop(self, batches: Container[LiveBatch], reason: str, actions: list[Action]) -> None:
        """Stop the transfers of these batches."""
        for stopped in [one for one, batch in self._moving.items() if batch in batches]:
            del self._moving[stopped]
            actions.append(StopSend(stopped, reason))


class LiveScaling:
    """All pairs of one model, by target."""

    __slots__ = (
        "_activations", "_busy", "_engines", "_host", "_load_ns", "_pieces", "_plans", "_runs", "_setup",
        "counts", "enabled", "pairs",
    )  # fmt: skip

    def __init__(self, setup: LiveSetup, engines: Mapping[int, Engine], host: LiveHost, moves: Moves) -> None:
        self._setup = setup
        self._engines = engines
        self._host = host
        self._pieces = moves.pieces
        self._activations = Activations(host.model, setup.activation_bytes_per_token, moves.transfer_ids)
        self.enabled = setup.enabled
        self.counts = LiveCounts()
        self.pairs: dict[int, LivePair] = {}
        self._plans = LivePlans(setup, self.counts)
        self._load_ns: dict[int, int | None] = {}  # of chosen instances, until they begin
        self._runs = LayerRuns(engines, setup.layers, self.counts)
        self._busy: set[int] = set()  # sources that have pulled a batch

    def head_arrival_ns(self) -> int | None:
        """When the first request of the common queue arrived; None: it is empty."""
        return self._host.head_arrival_ns()

    # New instances.

    @property
    def embeds(self) -> bool:
        """Whether targets have the embedding before their first layer."""
        return self._setup.policy.embeds

    def choose(self, now_ns: int, targets: Iterable[LiveTarget]) -> tuple[int, ...]:
        """Choose which of the instances that begin to load are live."""
        host, shown = self._host, tuple(targets)
        head_ns = host.head_arrival_ns()
        partners, helpers = len(host.partners()), len(host.helpers())
        waited_ns = 0 if head_ns is None else now_ns - head_ns
        backlog_tokens = host.backlog_tokens(self.requests)
        choice = LiveChoice(
            shown,
            waited_ns=waited_ns,
            backlog_tokens=backlog_tokens,
            partners=partners,
            helpers=helpers,
            pairs=len(self.pairs),
        )
        chosen = self._setup.policy.select(choice)
        self._load_ns |= {
            instance.replica: instance.load_ns for instance in shown if instance.replica in chosen
        }
        return chosen

    def begin(self, now_ns: int, target: int) -> None:
        """Create the pair of a chosen instance, whose parameters are in transit."""
        self._plans.begin(now_ns, target, self._load_ns.pop(target))
        self.pairs[target] = LivePair(target, self._setup.layers, self._setup.policy.embeds)

    def layers_loaded(
        self, now_ns: int, target: int, layers: int, fully_loaded: bool, actions: list[Action]
    ) -> None:
        """Note how many layers are loaded. The caller then lets the service continue.

        The last layer also needs the head, without which no token is sampled: it comes with everything.
        """
        pair, plans = self.pairs[target], self._plans
        plans.layers_loaded(now_ns, target, layers)
        if not fully_loaded:
            layers = min(layers, self._setup.layers - 1)
            if plans.is_late(now_ns, target, layers):
                return
        if plans.is_due(target):
            self._plan(pair, layers, actions)
        pair.layers_loaded(layers)
        self._remove_if_complete(pair)

    def load_stopped(self, target: int) -> None:
        """Handle a load that stopped: no layers follow, and sources finish the batches."""
        self.pairs[target].stop()
        self._remove_if_complete(self.pairs[target])

    def _remove_if_complete(self, pair: LivePair) -> None:
        if pair.is_complete and pair.target in self.pairs:
            del self.pairs[pair.target]
            self._plans.end(pair.target)

    def _plan(self, pair: LivePair, layers: int, actions: list[Action]) -> None:
        """Take up to ``ahead`` waiting batches and divide their layers."""
        engine, batches = self._engines[pair.target], list[tuple[Request, ...]]()
        while len(batches) < self._plans.scheduler.ahead and (batch := self._take(engine, layers, actions)):
            batches.append(batch)
        if batches:
            pair.plan(batches, self._plans.quotas(pair.target, layers, batches))
            self._embed(pair, actions)

    # Work.

    def idle(self, replica: int) -> bool:
        """Whether the instance could run layers now."""
        engine = self._engines[replica]
        if engine.layer_pass is not None or replica in self._busy:
            return False
        return self._host.may_run_layers(engine, self.pairs.get(replica))

    def work(self, actions: list[Action]) -> None:
        """Let new instances run what they can, until none takes more requests from the queue."""
        while any(self.work_of(pair, actions) for pair in list(self.pairs.values())):
            pass

    def work_of(self, pair: LivePair, actions: list[Action]) -> bool:
        """Let the target of a pair run what it can; returns whether it has taken requests."""
        if not pair.may_work or not self.idle(pair.target):
            return False
        begun = pair.begun
        self._embed(pair, actions)
        self._run(pair.work(lambda: self._fetch(pair, actions)), actions)
        self._embed(pair, actions)
        return pair.begun > begun

    def _fetch(self, pair: LivePair, actions: list[Action]) -> tuple[tuple[Request, ...], int | None]:
        """The next batch of the queue for a target, and its quota."""
        batch = self._take(self._engines[pair.target], pair.loaded, actions)
        if not batch or self._plans.scheduler.ahead != 1:
            return batch, None
        return batch, self._plans.quotas(pair.target, pair.loaded, [batch])[0]

    def _take(self, engine: Engine, loaded: int, actions: list[Action]) -> tuple[Request, ...]:
        batch = tuple(self._host.fetch(engine))
        why = f"live with {loaded} of {self._setup.layers} layers"
        for request in batch:
            self._pieces.reserve(engine, request.id, request.prompt_tokens)
            actions.append(Assign(request.id, engine.id, why))
        return batch

    def _embed(self, pair: LivePair, actions: list[Action]) -> None:
        """Let a source, if there is one, embed the prompts of batches that no source is embedding."""
        for batch in pair.not_embedded():
            source = next(iter(self._host.partners() or self._host.helpers()), -1)
            if source >= 0:
                batch.source = source
                self._activations.send(source, pair.target, batch, "embedded prompts", actions)

    def _run(self, layer_pass: LivePass | None, actions: list[Action]) -> None:
        if layer_pass is not None:
            self._runs.begin(layer_pass, self.pairs[layer_pass.batch.target], actions)

    def _send_on(self, batch: LiveBatch, actions: list[Action]) -> None:
        """Send activations to the old instance that pulled the batch."""
        self._activations.send(batch.target, batch.source, batch, f"{batch.done} layers done", actions)

    def pull(self, idle: set[int], actions: list[Action]) -> None:
        """Let idle instances take batches and remove them from ``idle``. A target first works on its own."""
        for source in sorted(idle):
            own = self.pairs.get(source)
            if own is not None:
                self.work_of(own, actions)
            if self._runs.at(source) is not None or self._pull(source, actions):
                idle.discard(source)
        if not self._host.partners():
            for helper in self._host.helpers():
                if helper not in self._busy and not self._pull(helper, actions):
                    return

    def offered(self, source: int) -> LiveBatch | None:
        """The earliest batch that this instance could pull if it had room."""
        offers = [batch for pair in self.pairs.values() if pair.target != source and (batch := pair.offer())]
        return min(
            offers, key=lambda batch: (batch.requests[0].arrival_ns, batch.requests[0].id), default=None
        )

    def _pull(self, source: int, actions: list[Action]) -> bool:
        engine = self._engines[source]
        batch = None if engine.layer_pass is not None else self.offered(source)
        if batch is None or not self._host.holds(engine, batch.requests):
            return False
        self._busy.add(source)
        self._host.keep(engine, batch.requests)
        why = f"pulled from {batch.target} with {batch.done} of {self._setup.layers} layers done"
        if batch.where == "running":
            why = f"claimed from {batch.target}, which runs layer {batch.done} of {self._setup.layers}"
        for request in batch.requests:
            self._pieces.reserve(engine, request.id, request.prompt_tokens)
            actions.append(Assign(request.id, source, why))
        if not batch.done:
            self._release(self._engines[batch.target], batch.requests)
            self._engines[batch.target].freed(actions)
        self._run(self.pairs[batch.target].pull(source, batch), actions)
        if batch.where == "moving":
            self._send_on(batch, actions)
        return True

    # Events.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> Engine:
        """Handle the end of a layer run. The caller then lets the service continue, and the engine last.

        Returns the target of the batch, which may also have more memory now.
        """
        batch = self._runs.ended(engine)
        self._busy.discard(engine.id)
        if batch.where == "over":  # its target was lost meanwhile
            self._drop(engine, batch)
        else:
            pair = self.pairs[batch.target]
            ended = pair.ended(engine.id)
            if ended.where == "over":
                self._computed(engine, ended, event.finished, actions)
            elif ended.where == "moving":
                self._send_on(ended, actions)
            self._remove_if_complete(pair)
        return self._engines[batch.target]

    def _computed(
        self, engine: Engine, batch: LiveBatch, finished: tuple[int, ...], actions: list[Action]
    ) -> None:
        """Report the batch as computed, on one or two instances; some requests ended at their first token."""
        target, done = self._engines[batch.target], list[Progress]()
        first_layers = None
        if engine is not target and batch.split:
            first_layers = Piece(batch.target, LayerRange(0, batch.split))
        for request in batch.requests:
            if request.id in finished:
                self._release(engine, (request,))
                if first_layers is not None:
                    self._release(target, (request,))
                continue
            progress = Progress(request)
            progress.computed = request.prompt_tokens
            done.append(progress)
        self._host.computed(engine, done, first_layers, batch.tokens, actions)

    def activations_arrived(self, event: Sent, actions: list[Action]) -> bool:
        """Handle arrived activations, or resend stopped ones; False if the transfer is another one."""
        batch = self._activations.activations_arrived(event.transfer)
        if batch is None:
            return False
        if event.cause:
            source, target = (
                (batch.source, batch.target) if batch.where == "embedding" else (batch.target, batch.source)
            )
            self._activations.send(source, target, batch, f"again, for {event.cause}", actions)
            return True
        self._run(self.pairs[batch.target].activations_arrived(batch), actions)
        return True

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """Handle a lost instance; returns the requests that are lost with it."""
        self._busy.discard(replica)
        running = self._runs.lost(replica)
        if running is not None:
            self._release(self._engines[replica], running.requests)
        back = [batch for pair in self.pairs.values() for batch in pair.source_lost(replica)]
        pair = self.pairs.pop(replica, None)
        lost_batches = [] if pair is None else list(pair.batches)
        self._activations.stop([*back, *lost_batches], f"replica {replica} was lost", actions)
        for batch in (*back, *lost_batches):
            self._release(self._engines[replica], batch.requests)
        for batch in lost_batches:
            if batch.source in self._busy and self._runs.at(batch.source) is None:
                self._busy.discard(batch.source)
                self._drop(self._engines[batch.source], batch)
            batch.where = "over"
        for batch in back:
            self._to_queue_if_unbegun(batch)
        return [request for batch in lost_batches for request in batch.requests]

    def _drop(self, engine: Engine, batch: LiveBatch) -> None:
        """Release all that a source keeps for a batch."""
        self._release(engine, batch.requests)
        self._host.dropped(engine)

    def _to_queue_if_unbegun(self, batch: LiveBatch) -> None:
        """Return a batch without any computed layer to the queue, and free the target's memory for it."""
        if batch.target in self.pairs and not batch.split and batch.where == "waiting":
            self.pairs[batch.target].take_back(batch)
            self._release(self._engines[batch.target], batch.requests)  # it may not have been pulled
            self._host.give_back(batch.requests)
            self._remove_if_complete(self.pairs[batch.target])

    def _release(self, engine: Engine, requests: Iterable[Request]) -> None:
        self._pieces.release(engine, [request.id for request in requests])

    # Queries.

    def promised(self, replica: int) -> bool:
        """Whether a source has pulled a batch."""
        return replica in self._busy

    def batches_of(self, replica: int) -> list[LiveBatch]:
        """Batches of this instance, begun or pulled."""
        batches = [batch for pair in self.pairs.values() for batch in pair.batches]
        return [batch for batch in batches if replica in (batch.target, batch.source)]

    def outstanding(self, replica: int) -> int:
        """Number of requests in batches of this instance."""
        return sum([len(batch.requests) for batch in self.batches_of(replica)])

    def held(self, replica: int) -> list[int]:
        """Requests for which this instance keeps memory."""
        own = [
            batch for batch in self.batches_of(replica) if batch.source == replica or not batch.left_target
        ]
        lost = self._runs.at(replica)
        if lost is not None and lost.where == "over":  # its pass still runs, though its first layers are lost
            own.append(lost)
        return [request.id for batch in own for request in batch.requests]

    @property
    def requests(self) -> list[Request]:
        """All requests in batches, in arbitrary order."""
        batches = [batch for pair in self.pairs.values() for batch in pair.batches]
        return [request for batch in batches for request in batch.requests]
