"""llm-d's Workload Variant Autoscaler: V1 by spare capacity, V2 by supply and demand.

Rules: llm-d-autoscaling, docs/developer-guide. Both add or remove instances of every role alike; the source
does not say how often they decide: 30 s here. A decision waits for instances that load.
"""

from collections import deque
from math import ceil

from policies.scaling.regression import least_squares
from policies.scaling.replica_counts import Due, ReplicaCounts, period_ns, serving_count
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import InstanceSignals, Signals


class WvaV1:
    """One more instance if the mean spare KV memory or queue is short; one less if the others have enough.

    An instance's spare KV is ``kv_threshold`` less its use, its spare queue ``queue_threshold`` less its
    waiting requests. Saturated instances are left out of the means. Loading instances count: none is added
    while one loads.
    """

    reads_signals = True
    metrics_read = ("kv_use", "waiting")

    def __init__(
        self,
        *,
        kv_threshold: float = 0.8,
        queue_threshold: float = 5.0,
        kv_spare: float = 0.1,
        queue_spare: float = 3.0,
        period_s: float = 30.0,
    ) -> None:
        if not 0 < kv_spare < kv_threshold <= 1 or not 0 < queue_spare <= queue_threshold:
            raise ValueError(
                "kv_spare must be above 0 and below kv_threshold, which is at most 1, "
                "and queue_spare above 0 and at most queue_threshold"
            )
        self._kv, self._queue = (kv_threshold, kv_spare), (queue_threshold, queue_spare)
        self.period_s = period_s
        self._due = Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._due.next_ns

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """At most one instance more or less of each role."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            own = signals.of_role(role.role)
            if own:
                self._decide(role, own, signals.queued / len(own), counts)
        return counts.with_first()

    def _decide(
        self, role: RoleView, own: list[InstanceSignals], queued: float, counts: ReplicaCounts
    ) -> None:
        kv = [self._kv[0] - instance.kv_use for instance in own]
        queue = [
            self._queue[0] - instance.waiting - (queued if role.role != "decode" else 0) for instance in own
        ]
        room = [(free, seats) for free, seats in zip(kv, queue, strict=True) if free > 0 and seats > 0]
        spare_kv = sum([free for free, _ in room]) / len(room) if room else 0.0
        spare_queue = sum([seats for _, seats in room]) / len(room) if room else 0.0
        reason = f"spare KV {spare_kv:.2f} and queue {spare_queue:.1f} of {len(room)} instances with room"
        if spare_kv < self._kv[1] or spare_queue < self._queue[1]:
            if not role.in_state("loading"):
                counts.set(role, role.supply + 1, reason)
        elif len(room) > 1 and role.supply == serving_count(role):
            left = len(room) - 1
            used = sum([instance.kv_use for instance in own]) / left
            waits = (sum([instance.waiting for instance in own]) + queued * len(own)) / left
            if self._kv[0] - used >= self._kv[1] and self._queue[0] - waits >= self._queue[1]:
                counts.set(role, role.supply - 1, f"{reason}; enough without one")


class WvaV2:
    """Required = demand / ``up`` - anticipated supply; surplus = supply - demand / ``down``.

    Two analysers, by KV memory and by throughput: up if either requires it, down if both have a surplus. The
    throughput of an instance is ``kv_share`` of its KV memory in requests of the present mean length, over
    the time per output token at that load: ITL(k) = A k + B, fitted by least squares over the KV use k of
    scrapes between 0.15 and 0.85 (at least ``samples`` of them that spread over 0.30; else B is 6 ms and A
    follows from the mean).
    """

    reads_signals = True
    metrics_read = ("kv_use", "prompt_tokens")

    def __init__(
        self,
        *,
        up: float = 0.85,
        down: float = 0.7,
        kv_share: float = 0.8,
        samples: int = 10,
        period_s: float = 30.0,
    ) -> None:
        if not 0 < down < up <= 1 or not 0 < kv_share <= 1 or samples < 2:
            raise ValueError(
                "down must be above 0 and below up, up and kv_share at most 1, samples 2 or more"
            )
        self._up, self._down, self._share, self._samples = up, down, kv_share, samples
        self.period_s = period_s
        self._due = Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._due.next_ns
        self._seen: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Set supply to demand."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            if role.supply and serving_count(role):
                self._decide(view, signals, role, counts)
        return counts.with_first()

    def _decide(self, view: ScalingView, signals: Signals, role: RoleView, counts: ReplicaCounts) -> None:
        demands = [self._by_memory(view, signals, role), self._by_throughput(view, signals, role)]
        known = [demand for demand in demands if demand is not None]
        required = max([demand / self._up for demand in known]) - role.supply
        surplus = serving_count(role) - max([demand / self._down for demand in known])
        reason = f"demand of {max(known):.2f} instances, {role.supply} in supply"
        if required > 0:
            counts.set(role, role.supply + ceil(required), reason)
        elif surplus >= 1 and role.supply == serving_count(role):
            counts.set(role, max(1, role.supply - int(surplus)), reason)

    def _by_memory(self, view: ScalingView, signals: Signals, role: RoleView) -> float:
        """Instances whose ``kv_share`` of KV memory holds what is in use and what waits."""
        own = signals.of_role(role.role)
        waiting = sum([instance.prompt_tokens for instance in own]) if role.role != "decode" else 0
        tokens = sum([instance.kv_use for instance in own]) * view.kv_tokens_per_instance
        tokens += max(waiting, view.backlog_tokens if role.role != "decode" else 0)
        return tokens / (self._share * view.kv_tokens_per_instance)

    def _by_throughput(self, view: ScalingView, signals: Signals, role: RoleView) -> float | None:
        """Instances whose rate of requests is the rate of arrivals; None: no request has finished yet."""
        tpot_ns, output = signals.measured.tpot.mean_ns, signals.mean_output_tokens
        prompt = signals.mean_prompt_tokens
        if not tpot_ns or output is None or prompt is None or role.role == "prefill":
            return None
        seen = self._seen.setdefault((view.model, role.role), deque(maxlen=256))
        used = signals.mean_of(role.role).kv_use
        if 0.15 <= used <= 0.85:
            seen.append((used, tpot_ns / 1e9))
        held = self._share * view.kv_tokens_per_instance / (prompt + output / 2)
        per_s = held / (output * self._itl_s(seen, used, tpot_ns / 1e9))
        return signals.requests_per_s / per_s

    def _itl_s(self, seen: deque[tuple[float, float]], used: float, now_s: float) -> float:
        uses = [one for one, _ in seen]
        if len(seen) >= self._samples and max(uses) - min(uses) >= 0.30:
            slope, x, y = least_squares(seen)
            return max(1e-3, slope * self._share + (y - slope * x))
        base = min(0.006, now_s)
        return base + (now_s - base) * (self._share / used if used > 0.05 else 1.0)
