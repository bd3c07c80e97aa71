"""Live scaling of instances that prefill and decode: which instance takes a batch of a pair, and when.

Batches come from the common queue. An instance that has no prompts of its own interrupts its decode run to
run layers of live batches. Meanwhile its decoding requests wait, as they do while a prompt is computed.
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
    """The live pairs of a model whose instances prefill and decode."""

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
        # For each replica that had no room for a batch: the target and number of that batch.
        self._refused: dict[int, tuple[int, int]] = {}

    # Queries before work is assigned.

    def free(self, replica: int) -> bool:
        """Whether an instance has no prompts in its queue, no own batch to work on, and could run layers."""
        pair = self._scaling.pairs.get(replica)
        own_batch = None if pair is None else pair.next_own()
        return own_batch is None and not self._engines[replica].waiting and self._scaling.idle(replica)

    def offered(self, replica: int) -> LiveBatch | None:
        """The earliest batch that this instance could pull if it had room."""
        return self._scaling.offered(replica)

    # Events.

    def end_own(self, actions: list[Action]) -> None:
        """Let fully loaded instances continue their batches before other instances pull these.

        A batch that stays needs no transfer of activations.
        """
        for pair in list(self._scaling.pairs.values()):
            if pair.fully_loaded:
                self._scaling.work_of(pair, actions)

    def take_over(self, replica: int, batch: LiveBatch, reports: bool, actions: list[Action]) -> None:
        """Let a free instance pull the offered batch if its memory has room for it.

        ``reports``: the instance reports now, so the memory of its resident requests is known; otherwise its
        run is interrupted to make it report. An instance without room for the batch tries it again only after
        memory was released on the instance.
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
            engine.cut_run(actions)  # the run was planned with memory that the batch now holds

    def work(self, actions: list[Action]) -> None:
        """Let loading instances run layers; count requests where they will decode, once that is known."""
        self._scaling.work(actions)
        self._places.count(self._scaling.pairs.values())

    def has_more(self, replica: int) -> None:
        """Let an instance try the batch again that it had no room for: memory was released on it."""
        self._refused.pop(replica, None)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> list[Engine]:
        """Handle the end of a layer run and remove finished requests.

        Returns the engine and the target of the batch: both may have more free memory now.
        """
        target = self._scaling.ran(engine, event, actions)
        self._places.finished(event.finished)
        self.has_more(engine.id)
        self.has_more(target.id)
        return [engine, target]

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """Returns (source, engine that decodes the requests) once first layers' KV has arrived, else None."""
        source_and_target = self._first_layers.sent(event, actions)
        if source_and_target is not None:
            self.has_more(source_and_target[0].id)
        return source_and_target

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """Handle a lost instance; returns the requests that are lost besides those in its engine."""
        lost_requests = self._scaling.lost(replica, actions)
        self._refused.clear()
        self._places.lost(replica, {request.id for request in lost_requests})
        return lost_requests + self._first_layers.lost(replica, actions)

    # Queries for the service.

    @property
    def kv_tokens(self) -> int:
        """Prompt and output tokens of those requests in live batches that no instance counts yet."""
        known = self._places.known
        unplaced_requests = [request for request in self._scaling.requests if request.id not in known]
        own = self._places.sequence_tokens
        return sum([demand_tokens(request) + own for request in unplaced_requests])

    @property
    def migrating_tokens(self) -> int:
        """Tokens of the requests whose first layers' KV is in transit."""
        return self._first_layers.migrating_tokens

    @property
    def places(self) -> dict[int, int]:
        """For each request in a live batch that an instance counts: that instance."""
        return self._places.known

    def outstanding(self, replica: int) -> int:
        """Number of requests that an instance works on and that another instance counts, or none yet.

        These are the requests of its live batches, and those whose first layers' KV is sent from it.
        """
        place_of = self._places.place_of
        batches = [batch for batch in self._scaling.batches_of(replica) if place_of(batch) != replica]
        return sum([len(batch.requests) for batch in batches]) + len(self._first_layers.at(replica))

    def held(self, replica: int) -> list[int]:
        """Requests outside its own engine for which this instance keeps memory."""
        return self._scaling.held(replica) + self._first_layers.at(replica)


def between_passes(engine: Engine, actions: list[Action]) -> None:
    """Choose the engine's next pass again: now if the engine is idle, else when the current step has ended.

    A request whose KV arrives at an instance with its own queue does not join a run in progress: the length
    of that run was computed without the memory that the request's tokens need.
    """
    if engine.state is EngineState.RUNNING and engine.layer_pass is None and not engine.prefilling:
        engine.cut_run(actions)
    else:
        engine.freed(actions)


def freed(engine: Engine, actions: list[Action]) -> None:
    """Choose the next pass again after memory was released, if a request waits or the engine is idle."""
    if engine.waiting or engine.state is EngineState.IDLE:
        between_passes(engine, actions)
