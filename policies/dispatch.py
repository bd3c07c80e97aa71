"""Which replica serves a request."""

from math import inf
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


class PrefixAware:
    """Where the prompt tokens left to compute and the load together are least, as KV routers choose.

    Cost of a replica: ``overlap_weight`` x the prompt tokens that it has not cached + the prompt tokens of
    its outstanding requests; the lowest wins, the lowest id among equals. This is the rule of NVIDIA Dynamo's
    KV router (docs.nvidia.com/dynamo, Router Design: overlap weight x new prefill blocks + active blocks), in
    tokens and without its term for other prompts in progress; its weight is 1 by default. 0 is pure load.
    What is cached is estimated from what was sent (``serving.engine.sent_prefixes``).
    """

    def __init__(self, overlap_weight: float = 1.0) -> None:
        if not 0 <= overlap_weight < inf:
            raise ValueError(f"overlap_weight must be finite and at least 0, not {overlap_weight}")
        self._weight = overlap_weight

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica of least cost; the reason tells what it has of the prompt, and its load."""
        weight, prompt, least, best = self._weight, request.prompt_tokens, inf, (-1, 0, 0)
        for position in range(fleet.replicas):
            replica = fleet.replica_at(position)
            cached, load = fleet.cached_tokens(replica, request), fleet.prompt_tokens(replica)
            cost = weight * (prompt - cached) + load
            if cost < least:
                least, best = cost, (replica, cached, load)
        replica, cached, load = best
        return replica, f"{cached} of {prompt} prompt tokens cached, {load} outstanding"
