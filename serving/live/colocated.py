"""Live pairs where instances prefill and decode: where their requests are counted, and KV in two places.

Batches come from the common door. An instance that has no prompts of its own to compute cuts its decode run
for layers of theirs, and its residents wait, as for any prompt. A request decodes where its last layers ran,
and is counted there from the moment that is known. If its first layers ran on the new instance, their KV is
sent after it, a move whose batch stays (``serving.kv.moves``): meanwhile the request is outgoing where it
will decode, for its prompt is computed and its memory is kept. What becomes of it: docs/STATES.md.
"""

from collections.abc import Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.progress import EngineState, Progress
from serving.kv.moves import Move, MovePhase, Moves
from serving.kv.pieces import Piece
from serving.live.host import LiveHost, LiveSetup
from serving.live.pairs import LiveBatch
from serving.live.scaling import Live
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.request import Request


class LiveColocated(Live):
    """The live pairs of a model whose instances do both. ``fleet``: the books it counts requests in."""

    __slots__ = ("_fleet", "_moves", "_places", "_refused", "_requests")

    def __init__(
        self,
        setup: LiveSetup,
        engines: Mapping[int, Engine],
        host: LiveHost,
        moves: Moves,
        fleet: Fleet,
        requests: Mapping[int, Request],
    ) -> None:
        super().__init__(setup, engines, host, moves)
        self._fleet = fleet
        self._requests = requests
        self._places: dict[int, tuple[int, Request]] = {}  # of requests in batches, where that is known
        self._moves = moves  # of first layers' KV
        self._refused: dict[int, tuple[int, int]] = {}  # replica -> the batch it had no room for

    # What it may do.

    def idle(self, replica: int) -> bool:
        """Whether a new instance computes neither prompts nor layers, and has seats for its next batch.

        Those in its queue came later than its batches.
        """
        engine = self._engines[replica]
        if engine.aside is not None or replica in self._busy or engine.prefilling:
            return False
        own = self._next_own(replica)
        if own is None or not self.pairs[replica].whole:
            return True
        decoding = len(engine.running) + len(engine.adopted) + len(engine.outgoing)
        return decoding + len(own.requests) <= self._setup.most_requests

    def free(self, replica: int) -> bool:
        """Whether an instance has no prompts left to compute, its own or its batches', and no layers."""
        own = self._next_own(replica)
        return own is None and not self._engines[replica].waiting and self.idle(replica)

    def _next_own(self, replica: int) -> LiveBatch | None:
        """The first batch that this new instance has yet to run layers of."""
        pair = self.pairs.get(replica)
        batches = () if pair is None else pair.batches
        return next((batch for batch in batches if batch.where in ("embedding", "waiting")), None)

    def offered(self, replica: int) -> LiveBatch | None:
        """The earliest batch that this instance could pull, had it room."""
        offers = [batch for pair in self.pairs.values() if pair.new != replica and (batch := pair.offer())]
        return min(offers, key=lambda one: (one.requests[0].arrival_ns, one.requests[0].id), default=None)

    def batch_of(self, engine: Engine, waiting: Iterable[Request], most_tokens: int) -> list[Request]:
        """The first of those who wait that make a pass on a new instance."""
        ledger, batch = engine.ledger, list[Request]()
        tokens, free = 0, ledger.free_blocks - ledger.watermark_blocks
        for request in waiting:
            tokens += request.prompt_tokens
            free -= ledger.blocks_for(request.prompt_tokens)
            full = len(batch) == self._setup.most_requests or (batch and tokens > most_tokens)
            if free < 0 or full:
                break
            batch.append(request)
        return batch

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether an instance that reports has seats and memory for these, as for prompts of its own."""
        ledger, wanted = engine.ledger, list(requests)
        if self._fleet.load(engine.id, "outstanding") + len(wanted) > self._setup.most_requests:
            return False
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in wanted])
        return blocks <= ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks()

    # What happens.

    def take_over(self, replica: int, batch: LiveBatch, reports: bool, actions: list[Action]) -> None:
        """A free instance pulls what is offered if it has room.

        How much memory its residents have is known when it ``reports``, so that it is made to. One without
        room is asked again when it has more, or for another batch.
        """
        engine, key = self._engines[replica], (batch.new, batch.number)
        if self._refused.get(replica) == key:
            return
        if reports or engine.state is EngineState.IDLE:
            idle = {replica}
            self.pull(idle, actions)
            self.count()
            if idle:
                self._refused[replica] = key
                return
        if engine.state is EngineState.RUNNING and engine.aside is None:
            engine.cut_run(actions)  # it was to use memory that is now the batch's

    def has_more(self, replica: int) -> None:
        """Memory was given back on an instance."""
        self._refused.pop(replica, None)

    def end_own(self, actions: list[Action]) -> None:
        """Whole instances go on with their batches before others pull these: nothing need be sent."""
        self._actions = actions
        for pair in list(self.pairs.values()):
            if pair.whole:
                pair.work()

    def count(self) -> None:
        """Requests whose place has become known are counted there."""
        for pair in self.pairs.values():
            for batch in pair.batches:
                place = self._place(batch)
                if place is None or batch.requests[0].id in self._places:
                    continue
                for request in batch.requests:
                    self._places[request.id] = place, request
                    self._fleet.assigned(place, request)

    def _place(self, batch: LiveBatch) -> int | None:
        """Where the last layers of a batch run, or will; None: not known."""
        if batch.where in ("claimed", "moving", "pulled"):
            return batch.old
        if batch.where == "running" and batch.done == self._setup.layers:
            return batch.new
        return None

    def ended(self, engine: Engine, event: Ran, actions: list[Action]) -> list[Engine]:
        """An instance has run its layers; those who finished leave. Returns who may have more memory now."""
        new = self.ran(engine, event, actions)
        for request in event.finished:
            place, gone = self._places.pop(request)
            self._fleet.departed(place, gone)
        self.has_more(engine.id)
        self.has_more(new.id)
        return [engine, new]

    def computed(
        self, engine: Engine, done: list[Progress], first_layers: Piece | None, actions: list[Action]
    ) -> None:
        """These have all their layers: they decode when all their KV is here.

        They are let in by the next pass, and layers that others wait for may go before it.
        """
        ids = [progress.id for progress in done]
        for request in ids:
            del self._places[request]
        if first_layers is None:
            engine.attach(done)
            return
        self._moves.pieces.add(ids, engine, first_layers)
        engine.attach(done, outgoing=True)
        here, groups = self._moves.by_sources(done)
        self._decode_here(self._moves.reserve(engine, engine, here))
        for group in groups:
            self._fetch(engine, group, actions)

    def _fetch(self, engine: Engine, batch: tuple[Progress, ...], actions: list[Action]) -> None:
        self._moves.begin(engine, engine, batch, "its last layers ran there", actions)

    def _decode_here(self, move: Move) -> list[Engine]:
        """All KV of a batch is where its last layers ran; returns where pieces of it lay."""
        sources = self._moves.commit(move)
        self._engines[move.target].attach(move.batch)
        return sources

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """First layers' KV has come: (its source, where the requests decode); None: it has not.

        What the world has stopped is sent again.
        """
        move = self._moves.sent(event, actions)
        if move is None:
            return None
        target = self._engines[move.target]
        if move.phase is MovePhase.ABORTED:
            self._fetch(target, move.batch, actions)
            return None
        (source,) = self._decode_here(move)
        self.has_more(source.id)
        return source, target

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """An instance is gone, its own requests with it; returns the others that are."""
        gone = super().lost(replica, actions)
        self._refused.clear()
        lost = {request.id for request in gone}
        for id, (place, request) in list(self._places.items()):
            if place == replica or id in lost:
                del self._places[id]
                self._fleet.departed(place, request)
        for move in self._moves.with_part_in(replica):
            self._moves.abort(move, f"replica {replica} was lost", actions)
            batch = [self._requests[request] for request in move.ids]
            if move.target != replica:  # its first layers are lost, and it fails
                self._engines[move.target].detach(move.batch)
                for request in batch:
                    self._fleet.departed(move.target, request)
                gone += batch
            self._pieces.join(move.ids)
        engine = self._engines[replica]
        self._pieces.release(engine, engine.ledger.holders())
        return gone

    # What is asked of it.

    @property
    def placeless(self) -> list[Request]:
        """Requests in batches that are counted nowhere."""
        return [request for request in self.requests if request.id not in self._places]

    @property
    def places(self) -> dict[int, int]:
        """Requests in batches that are counted somewhere -> where."""
        return {id: place for id, (place, _) in self._places.items()}

    @property
    def migrating_tokens(self) -> int:
        """Of the requests whose first layers' KV is on its way."""
        return sum([one.known_tokens for move in self._moves.all() for one in move.batch])

    def outstanding(self, replica: int) -> int:
        """Requests that an instance has something of and that are not counted there."""
        found = [batch for pair in self.pairs.values() for batch in pair.batches]
        own = [one for one in found if replica in (one.new, one.old) and self._place(one) != replica]
        return sum([len(batch.requests) for batch in own]) + len(self._pieces.at(replica))

    def held(self, replica: int) -> list[int]:
        """Requests that this instance keeps memory for and that are not among its own."""
        return super().held(replica) + self._pieces.at(replica)


def between_passes(engine: Engine, actions: list[Action]) -> None:
    """Its next pass is chosen anew: now if it is idle, else when the step under way has ended.

    Those who come to an instance with a queue of its own do not join a run: room is kept for none of them, so
    its steps were counted without theirs.
    """
    if engine.state is EngineState.RUNNING and engine.aside is None and not engine.prefilling:
        engine.cut_run(actions)
    else:
        engine.freed(actions)


def freed(engine: Engine, actions: list[Action]) -> None:
    """Memory was given back: if somebody waits for it a pass is chosen anew."""
    if engine.waiting or engine.state is EngineState.IDLE:
        between_passes(engine, actions)
