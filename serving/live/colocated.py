"""Live pairs where instances prefill and decode: where their requests are counted, and KV in two places.

Batches come from the common door. An instance that has no prompts of its own to compute cuts its decode run
for layers of theirs, and its residents wait, as for any prompt. A request decodes where its last layers ran,
and is counted there from the moment that is known. If its first layers ran on the new instance (the giver),
their KV is sent after it, and it decodes when that has come:

| request    | computed          | first layers' KV came | giver lost | place lost       |
|------------|-------------------|-----------------------|------------|------------------|
| in a batch | waits, or decodes | -                     | fails      | back to the pair |
| waits      | -                 | decodes               | fails      | fails            |
| decodes    | -                 | refused               | decodes on | fails            |

One who waits is outgoing where it decodes: its prompt is computed, and its memory is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.progress import EngineState, Progress
from serving.kv.transfers import Transfers, giver_bytes
from serving.live.host import LiveHost, LiveSetup
from serving.live.pairs import LiveBatch
from serving.live.scaling import Live
from serving.vocabulary.actions import Action, Send
from serving.vocabulary.events import Ran
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True)
class _FirstLayers:
    """KV of first layers on its way from its giver to where the batch decodes."""

    giver: int
    place: int
    batch: tuple[Progress, ...]


class LiveColocated(Live):
    """The live pairs of a model whose instances do both. ``fleet``: the books it counts requests in."""

    __slots__ = ("_coming", "_fleet", "_places", "_refused", "_requests")

    def __init__(
        self,
        setup: LiveSetup,
        engines: Mapping[int, Engine],
        host: LiveHost,
        numbers: Transfers,
        fleet: Fleet,
        requests: Mapping[int, Request],
    ) -> None:
        super().__init__(setup, engines, host, numbers)
        self._fleet = fleet
        self._requests = requests
        self._places: dict[int, tuple[int, Request]] = {}  # of requests in batches, where that is known
        self._coming: dict[int, _FirstLayers] = {}  # by transfer
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
        giver = self.ran(engine, event, actions)
        for request in event.finished:
            place, gone = self._places.pop(request)
            self._fleet.departed(place, gone)
        self.has_more(engine.id)
        self.has_more(giver.id)
        return [engine, giver]

    def computed(self, engine: Engine, done: list[Progress], actions: list[Action]) -> None:
        """These have all their layers: they decode when all their KV is here.

        They are let in by the next pass, and layers that others wait for may go before it.
        """
        setup, given, size_bytes = self._setup, list[Progress](), 0
        for progress in done:
            del self._places[progress.id]
            part_bytes = giver_bytes(progress, setup.layers, setup.kv_bytes_per_token)
            size_bytes += part_bytes
            if part_bytes:
                given.append(progress)
            else:
                self._in_one_place(engine, (progress,))
        if not given:
            return
        assert given[0].elsewhere is not None
        giver = given[0].elsewhere[0]
        number = self._numbers.begin(self._host.model)
        self._coming[number] = _FirstLayers(giver, engine.id, tuple(given))
        engine.attach(given, outgoing=True)
        ids = tuple([progress.id for progress in given])
        actions.append(Send(number, "kv", ids, giver, engine.id, size_bytes, "its last layers ran there"))

    def _in_one_place(self, engine: Engine, batch: Sequence[Progress]) -> None:
        for progress in batch:
            if progress.elsewhere is not None:
                self._engines[progress.elsewhere[0]].release((progress.id,))
                progress.elsewhere = None
        engine.attach(batch)

    def kv_came(self, transfer: int) -> tuple[Engine, Engine] | None:
        """First layers' KV has come: (giver, place); None if it was given up."""
        coming = self._coming.pop(transfer, None)
        if coming is None:
            return None
        place = self._engines[coming.place]
        self.has_more(coming.giver)
        place.detach(coming.batch, keeps_kv=True)
        self._in_one_place(place, coming.batch)
        return self._engines[coming.giver], place

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """An instance is gone, its own requests with it; returns the others that are."""
        gone = super().lost(replica, actions)
        self._refused.clear()
        lost = {request.id for request in gone}
        for id, (place, request) in list(self._places.items()):
            if place == replica or id in lost:
                del self._places[id]
                self._fleet.departed(place, request)
        for number, coming in list(self._coming.items()):
            if coming.place == replica:
                del self._coming[number]
                self._release(self._engines[coming.giver], self._known(coming))
            elif coming.giver == replica:
                del self._coming[number]
                gone += self._fail(coming)
        engine = self._engines[replica]
        engine.release(engine.ledger.holders())
        return gone

    def _known(self, coming: _FirstLayers) -> list[Request]:
        return [self._requests[progress.id] for progress in coming.batch]

    def _fail(self, coming: _FirstLayers) -> list[Request]:
        """First layers' KV does not come."""
        place, failing = self._engines[coming.place], self._known(coming)
        place.detach(coming.batch)
        for request in failing:
            self._fleet.departed(place.id, request)
        return failing

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
        return sum([one.known_tokens for coming in self._coming.values() for one in coming.batch])

    def outstanding(self, replica: int) -> int:
        """Requests that an instance has something of and that are not counted there."""
        found = [batch for pair in self.pairs.values() for batch in pair.batches]
        own = [one for one in found if replica in (one.new, one.old) and self._place(one) != replica]
        return sum([len(batch.requests) for batch in own]) + len(self._parts_at(replica))

    def held(self, replica: int) -> list[int]:
        """Requests that this instance keeps memory for and that are not among its own."""
        return super().held(replica) + self._parts_at(replica)

    def _parts_at(self, giver: int) -> list[int]:
        return [one.id for coming in self._coming.values() if coming.giver == giver for one in coming.batch]


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
