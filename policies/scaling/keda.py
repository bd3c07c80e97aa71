"""KEDA: an HPA on a trigger's total, which also goes from 0 instances to 1 and back.

Rules and defaults: keda.sh, "Scaling Deployments" and the Prometheus trigger. The HPA divides the trigger's
total by ``threshold`` (AverageValue of an external metric).
"""

from math import ceil

from policies.scaling.hpa import Behaviour, Pace
from policies.scaling.metrics import check_metric, is_latency, total
from policies.scaling.replica_counts import NS_PER_S, Due, ReplicaCounts, period_ns, positive
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView


class Keda:
    """A ScaledObject for each role. If 0 is allowed a role goes there ``cooldown_s`` after its last work."""

    reads_signals = True

    def __init__(
        self,
        *,
        metric: str = "concurrency",
        threshold: float = 16.0,
        activation_threshold: float = 0.0,
        polling_s: float = 30.0,
        cooldown_s: float = 300.0,
        sync_s: float = 15.0,
        tolerance: float = 0.1,
        up_pods: int = 4,
        up_percent: float = 100.0,
        stabilisation_s: float = 300.0,
    ) -> None:
        """``metric``: see ``policies.scaling.metrics``; no latency, which is no total."""
        self._metric, self._threshold = check_metric(metric), positive("threshold", threshold)
        self.metrics_read = (metric,)
        if is_latency(metric):
            raise ValueError(f"metric is {metric}, a latency: write a total, such as waiting")
        self._activation, self._tolerance = activation_threshold, tolerance
        polling_ns = period_ns("polling_s", polling_s)
        self._polls, self._due = Due(polling_ns), Due(period_ns("sync_s", sync_s))
        self.no_change_until_ns = self._due.next_ns
        if polling_ns % period_ns("sync_s", sync_s):
            raise ValueError(f"polling_s is {polling_s}, and must be a multiple of sync_s={sync_s}")
        self.period_s = sync_s
        self._cooldown_ns = round(cooldown_s * NS_PER_S)
        self._behaviour = Behaviour(Pace(pods=up_pods, percent=up_percent), stabilisation_s)
        self._active_ns: dict[tuple[str, str], int] = {}

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Activate or deactivate at polls, and follow the trigger at syncs."""
        if not self._due.is_due(view):
            return ()
        polls, counts = self._polls.is_due(view), ReplicaCounts(view)
        for role in view.roles:
            amount = None if view.signals is None else total(self._metric, view.signals, role.role)
            active = amount is not None and amount > self._activation
            # Before the first scrape a trigger says nothing; requests without an instance are its queue.
            active = active or (not role.supply and view.has_work)
            if active:
                self._active_ns[view.model, role.role] = view.now_ns
            if role.minimum == 0 and polls and self._activate(view, role, active, counts):
                continue
            if role.supply and amount is not None:
                self._follow(view, role, amount, counts)
        return counts.decisions()

    def _activate(self, view: ScalingView, role: RoleView, active: bool, counts: ReplicaCounts) -> bool:
        """From 0 to 1 and back to 0; returns whether the number was set."""
        if active and not role.supply:
            counts.set(role, 1, f"the trigger {self._metric} is active")
            return True
        since_ns = self._active_ns.get((view.model, role.role), 0)
        if not active and role.supply and view.now_ns - since_ns >= self._cooldown_ns:
            counts.set(
                role, 0, f"the trigger {self._metric} was not active for {self._cooldown_ns / 1e9:g} s"
            )
            return True
        return False

    def _follow(self, view: ScalingView, role: RoleView, amount: float, counts: ReplicaCounts) -> None:
        ratio = amount / (self._threshold * role.supply)
        wanted = role.supply if abs(ratio - 1) <= self._tolerance else ceil(amount / self._threshold)
        reason = f"{self._metric} is {amount:.4g} in all, the threshold {self._threshold:g} per instance"
        counts.set(role, max(1, self._behaviour.allowed(view, role, max(1, wanted))), reason)
