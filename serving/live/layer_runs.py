"""Passes over some layers of live batches, from the order to an engine until its report."""

from collections.abc import Mapping

from serving.engine.engine import Engine
from serving.engine.layer_pass import LayerPass
from serving.live.host import LiveCounts
from serving.live.pairs import LiveBatch, LivePair, LivePass
from serving.vocabulary.actions import Action


class LayerRuns:
    """Which replica runs layers of which batch. ``layers``: of the model."""

    __slots__ = ("_counts", "_engines", "_layers", "_running")

    def __init__(self, engines: Mapping[int, Engine], layers: int, counts: LiveCounts) -> None:
        self._engines = engines
        self._layers = layers
        self._counts = counts
        self._running: dict[int, LiveBatch] = {}

    def begin(self, one: LivePass, pair: LivePair, actions: list[Action]) -> None:
        """Order a pass for this pair from an engine."""
        batch = one.batch
        if one.replica == batch.target and not pair.fully_loaded:
            self._counts.passes += 1
            self._counts.layer_counts.add(pair.loaded)
            self._counts.requests += 0 if one.first else len(batch.requests)
        self._running[one.replica] = batch
        chunks = tuple([(request.id, 0, request.prompt_tokens) for request in batch.requests])
        why = f"live: {pair.loaded} of {self._layers} layers are on {batch.target}"
        self._engines[one.replica].run_layers(LayerPass(chunks, (one.first, one.last), why), actions)

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
