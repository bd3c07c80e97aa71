"""The live pairs of one model: which new instances work while they load, and what becomes of their batches.

``LivePair`` decides about one new instance; here its decisions become passes, transfers and memory. The
service of the model (``LiveHost``) has the queue, and takes what is computed.
"""

from collections.abc import Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.layer_pass import LayerPass
from serving.engine.progress import EngineState, Progress
from serving.kv.moves import Moves
from serving.kv.pieces import Piece
from serving.live.host import LiveCounts, LiveHost, LiveSetup
from serving.live.pairs import LiveBatch, LivePair
from serving.live.plans import LivePlans
from serving.protocols.live import LiveChoice, LiveTarget
from serving.vocabulary.actions import Action, Assign, Send, StopSend
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.request import Request

_FREE = (EngineState.IDLE, EngineState.LOADING)


class Live:
    """All pairs of one model, by new instance. It is the ``LiveHands`` of each of them."""

    __slots__ = (
        "_actions", "_busy", "_engines", "_finished", "_host", "_load_ns", "_moving", "_pieces", "_plans",
        "_running", "_setup", "_transfer_ids", "counts", "pairs",
    )  # fmt: skip

    def __init__(self, setup: LiveSetup, engines: Mapping[int, Engine], host: LiveHost, moves: Moves) -> None:
        self._setup = setup
        self._engines = engines
        self._host = host
        self._transfer_ids = moves.transfer_ids
        self._pieces = moves.pieces
        self.counts = LiveCounts()
        self.pairs: dict[int, LivePair] = {}
        self._plans = LivePlans(setup, self.counts)
        self._load_ns: dict[int, int | None] = {}  # of instances that were chosen, until they begin
        self._running: dict[int, LiveBatch] = {}  # replica -> the batch it runs layers of
        self._moving: dict[int, LiveBatch] = {}  # transfer -> whose activations
        self._busy: set[int] = set()  # old instances that have pulled a batch
        # What is handled now: where to put actions, and requests whose first token was their last.
        self._actions: list[Action] = []
        self._finished: tuple[int, ...] = ()

    # New instances.

    @property
    def embeds(self) -> bool:
        """Whether new instances have the embedding before their first layer."""
        return self._setup.policy.embeds

    def choose(self, now_ns: int, targets: Iterable[LiveTarget]) -> tuple[int, ...]:
        """Which of the instances that begin to load are live."""
        host, shown = self._host, tuple(targets)
        head_ns = host.head_arrival_ns()
        partners, helpers = len(host.partners()), len(host.helpers())
        waited_ns = 0 if head_ns is None else now_ns - head_ns
        choice = LiveChoice(shown, waited_ns, host.backlog_tokens, partners, helpers, len(self.pairs))
        chosen = self._setup.policy.select(choice)
        self._load_ns |= {one.replica: one.load_ns for one in shown if one.replica in chosen}
        return chosen

    def begin(self, now_ns: int, new: int) -> None:
        """The parameters of a chosen instance are on their way."""
        self._plans.begin(now_ns, new, self._load_ns.pop(new))
        self.pairs[new] = LivePair(new, self._setup.layers, self, self._setup.policy.embeds)

    def layers_came(self, now_ns: int, new: int, layers: int, whole: bool, actions: list[Action]) -> None:
        """So many layers are there. The caller then lets the service go on.

        Behind the last layer there is the head, without which no token is sampled: it is there when all is.
        """
        pair, plans, self._actions = self.pairs[new], self._plans, actions
        plans.layers_came(now_ns, new, layers)
        if not whole:
            layers = min(layers, self._setup.layers - 1)
            if plans.is_late(now_ns, new, layers):
                return
        if plans.is_due(new):
            self._plan(pair, layers)
        pair.layers_came(layers)
        self._drop_if_over(pair)

    def load_stopped(self, new: int) -> None:
        """Nothing more comes: others end what was begun."""
        self.pairs[new].stop()
        self._drop_if_over(self.pairs[new])

    def _drop_if_over(self, pair: LivePair) -> None:
        if pair.ended_for_good and pair.new in self.pairs:
            del self.pairs[pair.new]
            self._plans.end(pair.new)

    def _plan(self, pair: LivePair, layers: int) -> None:
        """Take the batches that wait, as many as were asked for, and divide their layers."""
        engine, batches = self._engines[pair.new], list[tuple[Request, ...]]()
        while len(batches) < self._plans.scheduler.ahead and (batch := self._take(engine, layers)):
            batches.append(batch)
        if batches:
            pair.plan(batches, self._plans.quotas(pair.new, layers, batches))

    # Facts.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> Engine:
        """An instance has run its layers. The caller then lets the service go on, and the engine last.

        Returns the new instance of the batch, which may have more memory now as well.
        """
        self._actions, self._finished = actions, event.finished
        engine.layers_ran()
        batch = self._running.pop(engine.id)
        self._busy.discard(engine.id)
        if batch.where == "over":  # it was lost meanwhile
            self._drop(engine, batch)
        else:
            pair = self.pairs[batch.new]
            pair.ended(engine.id)
            self._drop_if_over(pair)
        return self._engines[batch.new]

    def came(self, event: Sent, actions: list[Action]) -> bool:
        """Activations came, or are sent again if the world stopped them; False: it is another transfer."""
        batch = self._moving.pop(event.transfer, None)
        if batch is None:
            return False
        self._actions = actions
        if event.cause:
            source, target = (batch.old, batch.new) if batch.where == "embedding" else (batch.new, batch.old)
            self._send(source, target, batch, f"again, for {event.cause}")
            return True
        self.pairs[batch.new].came(batch)
        return True

    def pull(self, idle: set[int], actions: list[Action]) -> None:
        """Idle instances take batches over; they are ``idle`` no longer. A new one first ends its own."""
        self._actions = actions
        for old in sorted(idle):
            own = self.pairs.get(old)
            if own is not None:
                own.work()
            if old in self._running or self._pull(old):
                idle.discard(old)
        if not self._host.partners():
            for helper in self._host.helpers():
                if helper not in self._busy and not self._pull(helper):
                    return

    def work(self, actions: list[Action]) -> None:
        """New instances run what they can. What one has no memory for another may take, and so on."""
        self._actions = actions
        while any(pair.work() for pair in list(self.pairs.values())):
            pass

    def _pull(self, old: int) -> bool:
        if self._engines[old].aside is not None:
            return False
        offers = [batch for pair in self.pairs.values() if (batch := pair.offer()) and pair.new != old]
        if not offers:
            return False
        batch = min(offers, key=lambda one: (one.requests[0].arrival_ns, one.requests[0].id))
        engine = self._engines[old]
        if not self._host.holds(engine, batch.requests):
            return False
        self._busy.add(old)
        self._host.keep(engine, batch.requests)
        why = f"pulled from {batch.new} with {batch.done} of {self._setup.layers} layers done"
        if batch.where == "running":
            why = f"claimed from {batch.new}, which runs layer {batch.done} of {self._setup.layers}"
        for request in batch.requests:
            self._pieces.reserve(engine, request.id, request.prompt_tokens)
            self._actions.append(Assign(request.id, old, why))
        if not batch.done:
            self._release(self._engines[batch.new], batch.requests)
            self._engines[batch.new].freed(self._actions)
        self.pairs[batch.new].pull(old, batch)
        return True

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """An instance is gone; returns the requests that are gone with it."""
        self._actions = actions
        self._busy.discard(replica)
        running = self._running.pop(replica, None)
        if running is not None:
            self._release(self._engines[replica], running.requests)
        back = [batch for pair in self.pairs.values() for batch in pair.old_lost(replica)]
        pair = self.pairs.pop(replica, None)
        gone = [] if pair is None else list(pair.batches)
        for number in [number for number, batch in self._moving.items() if batch in back or batch in gone]:
            del self._moving[number]
            actions.append(StopSend(number, f"replica {replica} was lost"))
        for batch in (*back, *gone):
            self._release(self._engines[replica], batch.requests)
        for batch in gone:
            if batch.old in self._busy and batch.old not in self._running:
                self._busy.discard(batch.old)
                self._drop(self._engines[batch.old], batch)
            batch.where = "over"
        for batch in back:
            self._to_queue_if_unbegun(batch)
        return [request for batch in gone for request in batch.requests]

    def _drop(self, engine: Engine, batch: LiveBatch) -> None:
        """An old instance keeps nothing for a batch any more."""
        self._release(engine, batch.requests)
        self._host.dropped(engine)

    def _to_queue_if_unbegun(self, batch: LiveBatch) -> None:
        """A batch of prompts alone is back, and its new instance keeps no memory for it: to the queue."""
        if batch.new in self.pairs and not batch.split and batch.where == "waiting":
            self.pairs[batch.new].take_back(batch)
            self._release(self._engines[batch.new], batch.requests)  # of one that was not pulled
            self._host.give_back(batch.requests)
            self._drop_if_over(self.pairs[batch.new])

    # What is asked of it.

    def promised(self, replica: int) -> bool:
        """Whether an old instance has pulled a batch."""
        return replica in self._busy

    def outstanding(self, replica: int) -> int:
        """Requests in batches of this instance, begun or pulled."""
        found = [batch for pair in self.pairs.values() for batch in pair.batches]
        return sum([len(one.requests) for one in found if replica in (one.new, one.old)])

    def held(self, replica: int) -> list[int]:
        """Requests that this instance keeps memory for."""
        found = [batch for pair in self.pairs.values() for batch in pair.batches]
        own = [one for one in found if one.old == replica or (one.new == replica and not self._gave(one))]
        lost = self._running.get(replica)
        if lost is not None and lost.where == "over":  # it runs, though its first layers are gone
            own.append(lost)
        return [request.id for batch in own for request in batch.requests]

    @staticmethod
    def _gave(batch: LiveBatch) -> bool:
        return batch.where == "pulled" and not batch.split

    @property
    def requests(self) -> list[Request]:
        """All that are in batches, in no order that means anything."""
        batches = [batch for pair in self.pairs.values() for batch in pair.batches]
        return [request for batch in batches for request in batch.requests]

    # The hands of pairs: see LiveHands.

    def idle(self, replica: int) -> bool:
        """Whether the instance could run layers now."""
        engine = self._engines[replica]
        return engine.state in _FREE and engine.aside is None and replica not in self._busy

    def fetch(self, new: int) -> tuple[tuple[Request, ...], int | None]:
        """The next batch of the queue for a new instance, and its quota."""
        loaded = self.pairs[new].loaded
        batch = self._take(self._engines[new], loaded)
        if not batch or self._plans.scheduler.ahead != 1:
            return batch, None
        return batch, self._plans.quotas(new, loaded, [batch])[0]

    def _take(self, engine: Engine, loaded: int) -> tuple[Request, ...]:
        batch = tuple(self._host.fetch(engine))
        why = f"live with {loaded} of {self._setup.layers} layers"
        for request in batch:
            self._pieces.reserve(engine, request.id, request.prompt_tokens)
            self._actions.append(Assign(request.id, engine.id, why))
        return batch

    def run(self, replica: int, batch: LiveBatch, first: int, last: int) -> None:
        """Layers [first, last) as a pass of the instance."""
        pair = self.pairs[batch.new]
        if replica == batch.new and not pair.whole:
            self.counts.passes += 1
            self.counts.layer_counts.add(pair.loaded)
            self.counts.requests += 0 if first else len(batch.requests)
        self._running[replica] = batch
        chunks = tuple([(request.id, 0, request.prompt_tokens) for request in batch.requests])
        why = f"live: {pair.loaded} of {self._setup.layers} layers are on {batch.new}"
        self._engines[replica].run_layers(LayerPass(chunks, (first, last), why), self._actions)

    def send(self, new: int, batch: LiveBatch) -> None:
        """Activations to the old instance that pulled the batch."""
        self._send(new, batch.old, batch, f"{batch.done} layers done")

    def embed(self, new: int, batch: LiveBatch) -> int:
        """Embedded prompts from an old instance, which is returned; -1 where there is none."""
        old = next(iter(self._host.partners() or self._host.helpers()), -1)
        if old >= 0:
            self._send(old, new, batch, "embedded prompts")
        return old

    def _send(self, source: int, target: int, batch: LiveBatch, why: str) -> None:
        number = self._transfer_ids.begin(self._host.model)
        self._moving[number] = batch
        ids = tuple([request.id for request in batch.requests])
        size_bytes = batch.tokens * self._setup.activation_bytes_per_token
        self._actions.append(Send(number, "activations", ids, source, target, size_bytes, why))

    def over(self, replica: int, new: int, batch: LiveBatch) -> None:
        """The KV of the batch is computed, on one instance or two."""
        engine, split, done = self._engines[replica], batch.split, list[Progress]()
        first_layers = Piece(new, LayerRange(0, split)) if replica != new and split else None
        for request in batch.requests:
            if request.id in self._finished:
                self._release(engine, (request,))
                if first_layers is not None:
                    self._release(self._engines[new], (request,))
                continue
            progress = Progress(request)
            progress.computed = request.prompt_tokens
            done.append(progress)
        self._host.computed(engine, done, first_layers, batch.tokens, self._actions)

    def _release(self, engine: Engine, requests: Iterable[Request]) -> None:
        self._pieces.release(engine, [request.id for request in requests])
