"""Chiron: the batch size of instances by back-pressure, and their number with spare capacity (2501.08090).

The paper tells interactive requests, which never wait, from batch requests, which wait for a deadline, and
has instances for either and for both. Here every request is interactive: the queues know no deadlines.
"""

from math import ceil

from policies.scaling.replica_counts import Due, HeldCounts, ReplicaCounts, period_ns, positive, serving_count
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import Signals


class Chiron:
    """Local: batch size x ITL objective / observed ITL. Global: requests over batch size x ``theta``.

    Every ``local_s`` the limit on the requests that run on an instance is multiplied by the objective over
    the observed time per token (the mean of requests that finished in the window), at most by two either
    way, between 1 and ``most_batch``. Every ``period_s`` as many instances are wanted as run all requests at
    that batch size and are ``theta`` full then: the rest is spare for bursts. Counts are held for ``hold_s``.
    Defaults are ours.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        itl_ms: float = 50.0,
        theta: float = 0.33,
        batch: int = 64,
        most_batch: int = 4096,
        local_s: float = 5.0,
        period_s: float = 15.0,
        hold_s: float = 60.0,
        window_s: float = 15.0,
    ) -> None:
        if not 0 < theta <= 1 or not 1 <= batch <= most_batch:
            raise ValueError("theta must be above 0 and at most 1, and batch from 1 to most_batch")
        self._itl_ns, self._theta = positive("itl_ms", itl_ms) * 1e6, theta
        self._first, self._most = batch, most_batch
        local_ns = period_ns("local_s", local_s)
        if period_ns("period_s", period_s) % local_ns:
            raise ValueError(f"period_s is {period_s}, and must be a multiple of local_s={local_s}")
        self._local, self._due = Due(local_ns), Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._local.next_ns
        self.period_s, self.scrape_s, self.window_s = period_s, local_s, window_s
        self._held = HeldCounts(round(hold_s * 1e9))
        self._batch: dict[str, int] = {}
        self._limited: dict[int, tuple[int, int]] = {}  # instance -> when it began to serve, its limit

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Set limits, then counts."""
        counts = ReplicaCounts(view)
        if (signals := self._local.signals(view)) is None:
            return counts.with_first()
        batch, why = self._next_batch(view.model, signals)
        due = self._due.is_due(view)
        limits = list[ScaleDecision]()
        for role in view.roles:
            limits += self._limit(view, signals, role, batch, why)
            if due and serving_count(role):
                own = signals.of_role(role.role)
                there = sum([one.running + one.waiting for one in own]) + signals.queued
                wanted = max(1, ceil(there / (batch * self._theta)))
                reason = f"{there} requests in batches of {batch}, {self._theta:.2f} full"
                counts.set(role, self._held.held(view, role, wanted), reason)
        return (*limits, *counts.with_first())

    def _next_batch(self, model: str, signals: Signals) -> tuple[int, str]:
        batch, itl = self._batch.get(model, self._first), signals.measured.tpot
        why = "no request has finished yet"
        if itl.count and itl.mean_ns:
            times = max(0.5, min(2.0, self._itl_ns / itl.mean_ns))
            batch = max(1, min(self._most, int(batch * times)))
            why = f"{itl.mean_ns / 1e6:.1f} ms a token, the objective {self._itl_ns / 1e6:g}"
        self._batch[model] = batch
        return batch, why

    def _limit(
        self, view: ScalingView, signals: Signals, role: RoleView, batch: int, why: str
    ) -> list[ScaleDecision]:
        """Limit the serving instances that have another limit."""
        ready_ns = {instance.id: instance.ready_ns for instance in signals.of_role(role.role)}
        changed = tuple(
            instance.id
            for instance in role.in_state("serving")
            if self._limited.get(instance.id) != (ready_ns.get(instance.id, -1), batch)
        )
        for instance in changed:
            self._limited[instance] = ready_ns.get(instance, -1), batch
        if not changed:
            return []
        return [
            ScaleDecision(
                act="limit_batch",
                model=view.model,
                role=role.role,
                count=batch,
                instances=changed,
                reason=why,
            )
        ]
