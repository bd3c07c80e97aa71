"""Live scaling if instances do both prefill and decode: which instance takes a batch of a pair, and when.

Batches come from the common queue. An instance without prompts of its own cuts its decode run to run layers
of live batches. Its resident requests wait, as for any prompt.
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
from serving.vocabulary.request import Request, demand_tokens


class ColocatedLive:
    """Live pairs of a model whose instances prefill and decode, and their work beside their own queues."""

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

    # Queries before work is assigned.

    def free(self, replica: int) -> bool:
        """Whether an instance has no prompts left, its own or its batches', and no layers to run."""
        pair = self._scaling.pairs.get(replica)
        own = None if pair is None else pair.next_own()
        return own is None and not self._engines[replica].waiting and self._scaling.idle(replica)

    def offered(self, replica: int) -> LiveBatch | None:
        """The earliest batch that this instance could pull if it had room."""
        return self._scaling.offered(replica)

    # Events.

    def end_own(self, actions: list[Action]) -> None:
        """Let fully loaded instances continue their batches before others pull them: this saves transfers."""
        for pair in list(self._scaling.pairs.values()):
            if pair.fully_loaded:
                self._scaling.work_of(pair, actions)

    def take_over(self, replica: int, batch: LiveBatch, reports: bool, actions: list[Action]) -> None:
        """Let a free instance pull the offered batch if it has room.

        The memory of its resident requests is known only when it ``reports``, so its run is cut to make it
        report. An instance without room is asked again when it has more, or for another batch.
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
            engine.cut_run(actions)  # its run counted on memory that the batch now holds

    def work(self, actions: list[Action]) -> None:
        """Let new instances run what they can; count requests where they will decode once this is known."""
        self._scaling.work(actions)
        self._places.count(self._scaling.pairs.values())

    def has_more(self, replica: int) -> None:
        """Note that an instance got memory back."""
        self._refused.pop(replica, None)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> list[Engine]:
        """Handle the end of a layer run; finished requests leave. Returns engines with more memory."""
        target = self._scaling.ran(engine, event, actions)
        self._places.finished(event.finished)
        self.has_more(engine.id)
        self.has_more(target.id)
        return [engine, target]

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """Returns (source, engine where the requests decode) once first layers' KV has arrived, else None."""
        ends = self._first_layers.sent(event, actions)
        if ends is not None:
            self.has_more(ends[0].id)
        return ends

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """Handle a lost instance with its own requests; returns the other requests that are lost."""
        gone = self._scaling.lost(replica, actions)
        self._refused.clear()
        self._places.lost(replica, {request.id for request in gone})
        return gone + self._first_layers.lost(replica, actions)

    # Queries for the service.

    @property
    def kv_tokens(self) -> int:
        """Prompt and output tokens of the requests in batches that no instance counts yet."""
        known = self._places.known
        unplaced_requests = [request for request in self._scaling.requests if request.id not in known]
        return sum([demand_tokens(request) for request in unplaced_requests])

    @property
    def migrating_tokens(self) -> int:
        """Tokens of the requests whose first layers' KV is in transit."""
        return self._first_layers.migrating_tokens

    @property
    def places(self) -> dict[int, int]:
        """Requests in batches, with the instance that counts each."""
        return self._places.known

    def outstanding(self, replica: int) -> int:
        """Number of requests of which an instance holds a part and which it does not count."""
        place_of = self._places.place_of
        own = [batch for batch in self._scaling.batches_of(replica) if place_of(batch) != replica]
        return sum([len(batch.requests) for batch in own]) + len(self._first_layers.at(replica))

    def held(self, replica: int) -> list[int]:
        """Requests for which this instance keeps memory and which are not among its own."""
        return self._scaling.held(replica) + self._first_layers.at(replica)


def between_passes(engine: Engine, actions: list[Action]) -> None:
    """Choose the engine's next pass anew: now if it is idle, else when the current step has ended.

    If a request's KV arrives at an instance with a queue of its own, the request does not join a run. No room
    was kept for it, so the run's steps were computed without its tokens.
    """
    if engine.state is EngineState.RUNNING and engine.layer_pass is None and not engine.prefilling:
        engine.cut_run(actions)
    else:
        engine.freed(actions)


def freed(engine: Engine, actions: list[Action]) -> None:
    """Choose a pass anew after memory was given back, if a request waits for memory."""
    if engine.waiting or engine.state is EngineState.IDLE:
        between_passes(engine, actions)
