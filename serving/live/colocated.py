"""Live scaling where instances prefill and decode: who takes a batch of the pairs, and when.

Batches come from the common queue. An instance that has no prompts of its own to compute cuts its decode run
for layers of theirs, and its residents wait, as for any prompt.
"""

from collections.abc import Mapping

from serving.engine.engine import Engine
from serving.engine.progress import EngineState
from serving.live.decode_places import DecodePlaces
from serving.live.first_layers import FirstLayers
from serving.live.pairs import LiveBatch
from serving.live.scaling import LiveScaling
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.request import Request


class ColocatedLive:
    """The live pairs of a model whose instances do both, and what they do beside their own queues."""

    __slots__ = ("_engines", "_first_layers", "_places", "_refused", "_scaling")

    def __init__(
        self,
        scaling: LiveScaling,
        engines: Mapping[int, Engine],
        places: DecodePlaces,
        first_layers: FirstLayers,
    ) -> None:
        self._scaling = scaling
        self._engines = engines
        self._places = places
        self._first_layers = first_layers
        self._refused: dict[int, tuple[int, int]] = {}  # replica -> the batch it had no room for

    # What it may do.

    def free(self, replica: int) -> bool:
        """Whether an instance has no prompts left to compute, its own or its batches', and no layers."""
        pair = self._scaling.pairs.get(replica)
        own = None if pair is None else pair.next_own()
        return own is None and not self._engines[replica].waiting and self._scaling.idle(replica)

    def offered(self, replica: int) -> LiveBatch | None:
        """The earliest batch that this instance could pull, had it room."""
        return self._scaling.offered(replica)

    # What happens.

    def end_own(self, actions: list[Action]) -> None:
        """Whole instances go on with their batches before others pull these: nothing need be sent."""
        for pair in list(self._scaling.pairs.values()):
            if pair.fully_loaded:
                self._scaling.work_of(pair, actions)

    def take_over(self, replica: int, batch: LiveBatch, reports: bool, actions: list[Action]) -> None:
        """A free instance pulls what is offered if it has room.

        How much memory its residents have is known when it ``reports``, so that it is made to. One without
        room is asked again when it has more, or for another batch.
        """
        engine, key = self._engines[replica], (batch.target, batch.number)
        if self._refused.get(replica) == key:
            return
        if reports or engine.state is EngineState.IDLE:
            idle = {replica}
            self._scaling.pull(idle, actions)
            self._places.count(self._scaling.pairs.values())
            if idle:
                self._refused[replica] = key
                return
        if engine.state is EngineState.RUNNING and engine.layer_pass is None:
            engine.cut_run(actions)  # it was to use memory that is now the batch's

    def work(self, actions: list[Action]) -> None:
        """New instances run what they can; requests whose place is known then are counted there."""
        self._scaling.work(actions)
        self._places.count(self._scaling.pairs.values())

    def has_more(self, replica: int) -> None:
        """Memory was given back on an instance."""
        self._refused.pop(replica, None)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> list[Engine]:
        """An instance has run its layers; finished requests leave. Returns engines with more memory."""
        target = self._scaling.ran(engine, event, actions)
        self._places.finished(event.finished)
        self.has_more(engine.id)
        self.has_more(target.id)
        return [engine, target]

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """First layers' KV has come: (its source, where the requests decode); None: it has not."""
        ends = self._first_layers.sent(event, actions)
        if ends is not None:
            self.has_more(ends[0].id)
        return ends

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """An instance is gone, its own requests with it; returns the others that are."""
        gone = self._scaling.lost(replica, actions)
        self._refused.clear()
        self._places.lost(replica, {request.id for request in gone})
        return gone + self._first_layers.lost(replica, actions)

    # What is asked of it.

    @property
    def kv_tokens(self) -> int:
        """All the tokens that requests in batches may have, of those that are counted nowhere."""
        known = self._places.known
        unplaced_requests = [one for one in self._scaling.requests if one.id not in known]
        return sum([one.prompt_tokens + one.max_new_tokens for one in unplaced_requests])

    @property
    def migrating_tokens(self) -> int:
        """Of the requests whose first layers' KV is on its way."""
        return self._first_layers.migrating_tokens

    @property
    def places(self) -> dict[int, int]:
        """Requests in batches that are counted somewhere -> where."""
        return self._places.known

    def outstanding(self, replica: int) -> int:
        """Requests that an instance has something of and that are not counted there."""
        place_of = self._places.place_of
        own = [one for one in self._scaling.batches_of(replica) if place_of(one) != replica]
        return sum([len(batch.requests) for batch in own]) + len(self._first_layers.at(replica))

    def held(self, replica: int) -> list[int]:
        """Requests that this instance keeps memory for and that are not among its own."""
        return self._scaling.held(replica) + self._first_layers.at(replica)


def between_passes(engine: Engine, actions: list[Action]) -> None:
    """Its next pass is chosen anew: now if it is idle, else when the step under way has ended.

    Requests whose KV comes to an instance with a queue of its own do not join a run: no room was kept for
    them, so the run's steps were counted without their tokens.
    """
    if engine.state is EngineState.RUNNING and engine.layer_pass is None and not engine.prefilling:
        engine.cut_run(actions)
    else:
        engine.freed(actions)


def freed(engine: Engine, actions: list[Action]) -> None:
    """Memory was given back: if a request waits for it a pass is chosen anew."""
    if engine.waiting or engine.state is EngineState.IDLE:
        between_passes(engine, actions)
