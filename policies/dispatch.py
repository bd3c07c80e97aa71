"""Dispatch policies: which replica serves a request."""

from math import inf
from random import Random

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S


class RoundRobin:
    """Each replica in turn."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The next of this model's replicas in round-robin order."""
        turn = self._next.get(request.model, 0) % fleet.replicas
        self._next[request.model] = turn + 1
        return fleet.replica_at(turn), "its turn"


class LeastOutstanding:
    """The replica with the fewest requests assigned and not finished."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica with the fewest outstanding requests; the reason states how many."""
        replica, load = fleet.least("outstanding")
        return replica, f"{load} outstanding"


class LeastKv:
    """The replica whose requests may need the least KV memory (prompt + expected output of each)."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica with the least KV demand; the reason states the demand."""
        replica, load = fleet.least("kv_demand")
        return replica, f"{load} KV tokens demanded"


class PowerOfTwoChoices:
    """Two replicas at random, the one with fewer outstanding requests (Mitzenmacher 2001)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The less loaded of two random draws; on a tie the lower id."""
        count, draw = fleet.replicas, self._random.random
        drawn = [fleet.replica_at(int(draw() * count)) for _ in range(2)]
        load, replica = min((fleet.load(replica, "outstanding"), replica) for replica in drawn)
        return replica, f"{load} outstanding, drawn {drawn[0]} and {drawn[1]}"


class WaitingRunning:
    """vLLM 0.19's front end before data-parallel engines: least waiting x 4 + running requests.

    vLLM's front end has counts that its engines publish at most every 100 ms. It adds 1 to an engine's
    waiting count for each request that it sends there (v1/engine/core_client.py: get_core_engine_for_request;
    coordinator.py: min_stats_update_interval_ms). This class reads the counts again once they are
    ``counts_age_ms`` old. Ties go to the lowest id.
    """

    def __init__(self, counts_age_ms: float = 100.0) -> None:
        if not 0 <= counts_age_ms < inf:
            raise ValueError(f"counts_age_ms must be finite and at least 0, not {counts_age_ms}")
        self._age_ns = int(counts_age_ms * NS_PER_S / 1000)
        self._read_ns: dict[str, int] = {}
        self._counts: dict[str, dict[int, list[int]]] = {}  # by model and replica: waiting, running

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica with the least score; the reason states its counts."""
        model, now_ns = request.model, request.arrival_ns
        alive = [fleet.replica_at(position) for position in range(fleet.replicas)]
        counts = self._counts.get(model, {})
        if list(counts) != alive or now_ns - self._read_ns[model] >= self._age_ns:
            counts = self._counts[model] = {replica: self._read(replica, fleet) for replica in alive}
            self._read_ns[model] = now_ns
        replica = min(
            alive, key=lambda candidate: (4 * counts[candidate][0] + counts[candidate][1], candidate)
        )
        waiting, running = counts[replica]
        counts[replica][0] += 1
        return replica, f"{waiting} waiting, {running} running"

    def _read(self, replica: int, fleet: FleetView) -> list[int]:
        running = fleet.running(replica)
        return [fleet.load(replica, "outstanding") - running, running]


class PrefixAware:
    """The replica with the least uncached prompt tokens plus load, as KV routers choose.

    Cost of a replica: ``overlap_weight`` x the prompt tokens that it has not cached + the prompt tokens of
    its outstanding requests. The lowest cost wins, on a tie the lowest id. This is the rule of NVIDIA
    Dynamo's KV router (docs.nvidia.com/dynamo, Router Design: overlap weight x new prefill blocks + active
    blocks), in tokens and without its term for other prompts in progress; its weight is 1 by default. Weight
    0 considers load alone. Cached tokens are estimated from the requests sent
    (``serving.engine.fleet``).
    """

    def __init__(self, overlap_weight: float = 1.0) -> None:
        if not 0 <= overlap_weight < inf:
            raise ValueError(f"overlap_weight must be finite and at least 0, not {overlap_weight}")
        self._weight = overlap_weight

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The replica of least cost; the reason states its cached prompt tokens and its load."""
        weight, prompt, least, best = self._weight, request.prompt_tokens, inf, (-1, 0, 0)
        for position in range(fleet.replicas):
            replica = fleet.replica_at(position)
            cached, load = fleet.cached_tokens(replica, request), fleet.prompt_tokens(replica)
            cost = weight * (prompt - cached) + load
            if cost < least:
                least, best = cost, (replica, cached, load)
        replica, cached, load = best
        return replica, f"{cached} of {prompt} prompt tokens cached, {load} outstanding"
