"""Where the requests of live batches will decode, for models whose instances prefill and decode.

A request decodes where its last layers ran, and is counted there from the moment this is known.
"""

from collections.abc import Collection, Iterable

from serving.engine.fleet import Fleet
from serving.live.pairs import LiveBatch, LivePair
from serving.vocabulary.request import Request


class DecodePlaces:
    """``fleet``: counts the requests of each replica. ``layers``: number of layers of the model."""

    __slots__ = ("_fleet", "_layers", "_places")

    def __init__(self, fleet: Fleet, layers: int) -> None:
        self._fleet = fleet
        self._layers = layers
        self._places: dict[int, tuple[int, Request]] = {}

    @property
    def sequence_tokens(self) -> int:
        """Tokens that each request counts with besides its own (``Replica.sequence_tokens``)."""
        return self._fleet.sequence_tokens

    def place_of(self, batch: LiveBatch) -> int | None:
        """The replica that runs the last layers of a batch; None if not known yet."""
        if batch.where in ("claimed", "moving", "pulled"):
            return batch.source
        if batch.where == "running" and batch.done == self._layers:
            return batch.target
        return None

    def count(self, pairs: Iterable[LivePair]) -> None:
        """Count requests on the replicas that will decode them, where these have become known."""
        for pair in pairs:
            for batch in pair.batches:
                place = self.place_of(batch)
                if place is None or batch.requests[0].id in self._places:
                    continue
                for request in batch.requests:
                    self._places[request.id] = place, request
                    self._fleet.assigned(place, request)

    def finished(self, requests: Iterable[int]) -> None:
        """Stop counting requests that finished with their first token."""
        for request in requests:
            place, gone = self._places.pop(request)
            self._fleet.departed(place, gone)

    def computed(self, requests: Iterable[int]) -> None:
        """Forget requests that have arrived on their replica; the fleet continues to count them there."""
        for request in requests:
            del self._places[request]

    def lost(self, replica: int, gone: Collection[int]) -> None:
        """Stop counting the requests of a lost replica and the other lost requests ``gone``."""
        for id, (place, request) in list(self._places.items()):
            if place == replica or id in gone:
                del self._places[id]
                self._fleet.departed(place, request)

    @property
    def known(self) -> dict[int, int]:
        """For each request in a batch: the replica that counts it."""
        return {id: place for id, (place, _) in self._places.items()}
