"""Dispatch policies: which replica serves a request."""

from math import inf
from random import Random
from typing import Final

from serving.engine.fleet import FleetView
from serving.protocols.splitting import SplitView
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

CONVERT_TTFT_MS: Final = ((256, 250.0), (1024, 400.0), (inf, 2000.0))
"""Prompts below so many tokens, and the time to their first token in TokenScale: arXiv 2512.03416."""


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


class ConvertibleDecoders:
    """A prompt goes to a convertible decoder if prefill instances would take longer than its objective.

    TokenScale (arXiv 2512.03416): of a split system, some decode instances take bursts of prompts, in chunks
    that keep the time per output token. Their number is set before the run.

    Convertible: the ``decoders`` decode instances of lowest id. Prefill takes all prompt tokens that wait
    there over what its instances compute; a convertible decoder takes its own over its chunk per ``tpot_ms``.
    The decoder that is done first takes the prompt if it keeps the objective and has memory for the request;
    else the prompt waits for a prefill instance. ``ttft_ms`` null: the paper's by prompt length.
    ``chunk_tokens`` null: what a step computes within ``tpot_ms`` beside a full decode batch.
    """

    def __init__(
        self,
        *,
        estimates: Estimates,
        decoders: int = 1,
        ttft_ms: float | None = None,
        tpot_ms: float = 100.0,
        chunk_tokens: int | None = None,
    ) -> None:
        if decoders < 0 or not 0 < tpot_ms < inf or (ttft_ms is not None and not 0 < ttft_ms < inf):
            raise ValueError("decoders must be 0 or more, tpot_ms and ttft_ms above 0")
        if chunk_tokens is not None and chunk_tokens < 1:
            raise ValueError(f"chunk_tokens is {chunk_tokens}, and must be 1 or more")
        self._estimates, self._decoders, self._ttft_ms = estimates, decoders, ttft_ms
        self._tpot_s, self._chunk_tokens = tpot_ms / 1e3, chunk_tokens
        self.dispatch = LeastOutstanding().dispatch  # where instances do both

    def chunk_tokens(self, model: str) -> int:
        """Tokens of a step within ``tpot_ms``, at the estimated speed of prompts beside a full batch."""
        if self._chunk_tokens is not None:
            return self._chunk_tokens
        known = self._estimates.of(model)
        return max(1, int((self._tpot_s - known.decode_step_s) * known.prefill_tokens_per_s))

    def convert(self, request: Request, view: SplitView) -> tuple[int, str] | None:
        """The convertible decoder that answers first, if prefill is too slow for this prompt."""
        tokens, velocity = request.prompt_tokens, self._estimates.of(request.model).prefill_tokens_per_s
        limit_s = self._limit_s(tokens)
        waits_s = (view.backlog_tokens + tokens) / (velocity * len(view.prefill)) if view.prefill else inf
        if waits_s <= limit_s:
            return None
        chunk = self.chunk_tokens(request.model)
        options = [
            ((view.prompt_tokens(replica) + tokens) * self._tpot_s / chunk, replica)
            for replica in view.decode[: self._decoders]
            if view.has_room(replica, request)
        ]
        takes_s, replica = min(options, default=(inf, -1))
        if takes_s > limit_s:
            return None
        return replica, f"{takes_s * 1e3:.0f} ms in chunks of {chunk}, prefill takes {waits_s * 1e3:.0f}"

    def _limit_s(self, prompt_tokens: int) -> float:
        if self._ttft_ms is not None:
            return self._ttft_ms / 1e3
        return next(limit for below, limit in CONVERT_TTFT_MS if prompt_tokens < below) / 1e3
