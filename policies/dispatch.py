"""Which replica serves a request."""

from random import Random

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request


class RoundRobin:
    """Each replica in turn."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The next position in the circle of this model's replicas."""
        turn = self._next.get(request.model, 0) % fleet.replicas
        self._next[request.model] = turn + 1
        return fleet.replica_at(turn), "its turn"


class LeastOutstanding:
    """The replica with the fewest requests assigned and not finished."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The least loaded replica; the reason tells its load."""
        replica, load = fleet.least("outstanding")
        return replica, f"{load} outstanding"


class LeastKv:
    """The replica whose requests may need the least KV memory (prompt + max_new_tokens of each)."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica with the least KV demand; the reason tells it."""
        replica, load = fleet.least("kv_demand")
        return replica, f"{load} KV tokens demanded"


class PowerOfTwoChoices:
    """Two replicas at random, the one with fewer outstanding requests (Mitzenmacher 2001)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The better of two draws, the lower id among equals."""
        count, draw = fleet.replicas, self._random.random
        drawn = [fleet.replica_at(int(draw() * count)) for _ in range(2)]
        load, replica = min((fleet.load(replica, "outstanding"), replica) for replica in drawn)
        return replica, f"{load} outstanding, drawn {drawn[0]} and {drawn[1]}"
