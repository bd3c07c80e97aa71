"""Which new instances serve while they load (OSDI 2025, section 5.2), and with which layer scheduler."""

from collections.abc import Callable
from math import inf
from typing import Final, cast

from policies.live.zigzag import BestEffort, Ilp, IlpFree, StopTheWorld
from policies.live.zigzag_ilp import DETERMINISTIC_LIMIT, Formulation
from serving.protocols.live import LiveChoice, LiveScheduler

SCHEDULERS: Final[dict[str, Callable[[], LiveScheduler]]] = {
    "ilp_free": IlpFree,
    "best_effort": BestEffort,
    "ilp": Ilp,
    "stop": StopTheWorld,
}
EMBEDDINGS: Final = ("target", "source")
_NS_PER_MS: Final = 1_000_000


class LiveScaling:
    """A serving.protocols.live.LivePolicy: load live if waiting would miss ``slo_ms`` and requests queue.

    A new instance loads live if the first queued request, after waiting for the whole load, would get its
    first token too late. With ``tails_only`` it must also forward parameters to no other instance, since
    forwarding would interfere with the state it sends. Each partner works with ``targets_per_partner`` new
    instances, those that load longest first.
    """

    def __init__(
        self,
        scheduler: LiveScheduler,
        slo_ms: float,
        tails_only: bool = True,
        targets_per_partner: int = 1,
        embedding: str = "target",
    ) -> None:
        if not 0 <= slo_ms < inf:
            raise ValueError(f"slo_ms is {slo_ms}, and must be a time of 0 ms or more")
        if targets_per_partner < 1:
            raise ValueError(f"targets_per_partner is {targets_per_partner}, and must be 1 or more")
        if embedding not in EMBEDDINGS:
            raise ValueError(f"embedding is {embedding}, and must be target or source")
        self.scheduler = scheduler
        self.embeds = embedding == "target"
        self._slo_ns = round(slo_ms * _NS_PER_MS)
        self._tails_only = tails_only
        self._per_partner = targets_per_partner

    def select(self, choice: LiveChoice) -> tuple[int, ...]:
        """The slowest-loading late targets, as many as partners have room for; ties in the plan's order."""
        partners = choice.partners or min(choice.helpers, 1)
        if isinstance(self.scheduler, StopTheWorld) or not choice.backlog_tokens:
            return ()
        late = [
            (-(inf if target.load_ns is None else target.load_ns), target.replica)
            for target in choice.targets
            if (target.tail or not self._tails_only)
            and (target.load_ns is None or choice.waited_ns + target.load_ns > self._slo_ns)
        ]
        room = max(0, partners * self._per_partner - choice.pairs)
        longest = sorted(late, key=lambda plan: plan[0])[:room]
        return tuple([replica for _, replica in longest])


def live_scaling(
    ttft_slo_ms: float,
    *,
    scheduler: str = "ilp_free",
    slo_ms: float | None = None,
    tails_only: bool = True,
    targets_per_partner: int = 1,
    embedding: str = "target",
    formulation: str = "executable",
    deterministic_limit: float = DETERMINISTIC_LIMIT,
    solve_ms: float = 40,
    batches_ahead: int = 12,
) -> LiveScaling:
    """Build the policy from configuration values; ``slo_ms``: None takes the run's ``ttft_slo_ms``.

    The last four arguments belong to the integer program. Raises ValueError: one sentence that names the key.
    """
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler is {scheduler}, and must be one of {', '.join(SCHEDULERS)}")
    made = SCHEDULERS[scheduler]()
    if scheduler == "ilp":
        if not 0 <= solve_ms < inf or batches_ahead < 2:
            raise ValueError("the ILP needs solve_ms of 0 or more and batches_ahead of 2 or more")
        solve_ns = round(solve_ms * _NS_PER_MS)
        made = Ilp(cast(Formulation, formulation), deterministic_limit, batches_ahead, solve_ns)
    limit_ms = ttft_slo_ms if slo_ms is None else slo_ms
    return LiveScaling(made, limit_ms, tails_only, targets_per_partner, embedding)
