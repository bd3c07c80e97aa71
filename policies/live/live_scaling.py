"""Which new instances serve while they load (OSDI 2025, section 5.2), with which scheduler of layers."""

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
    """A serving.protocols.live.LivePolicy: live where a stop would miss ``slo_ms`` and a backlog exists.

    A new instance is live if the first request in the queue, having waited for all its parameters, would get
    its first token too late. With ``tails_only`` it must feed no other: parameters that it forwarded would
    interfere with the state it sends. Each partner takes part with ``targets_per_partner`` new ones, those
    that load longest first.
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
        """Those that load longest, as many as partners have room for; ties in the order of the plan."""
        partners = choice.partners or min(choice.helpers, 1)
        if isinstance(self.scheduler, StopTheWorld) or not choice.backlog_tokens:
            return ()
        late = [
            (-(inf if one.load_ns is None else one.load_ns), one.replica)
            for one in choice.targets
            if (one.tail or not self._tails_only)
            and (one.load_ns is None or choice.waited_ns + one.load_ns > self._slo_ns)
        ]
        room = max(0, partners * self._per_partner - choice.pairs)
        longest = sorted(late, key=lambda found: found[0])[:room]
        return tuple([replica for _, replica in longest])


def live_scaling(
    ttft_slo_ms: float,
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
    """From the plain values of a configuration; ``slo_ms`` None: the run's own objective, ``ttft_slo_ms``.

    The last four are those of the integer program. Raises ValueError: one sentence that names the key.
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
