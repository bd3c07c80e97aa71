"""Kubernetes' HorizontalPodAutoscaler, on one metric of the model.

Rules and defaults: kubernetes.io, "Horizontal Pod Autoscaling", algorithm details and default behaviour
(autoscaling/v2). A role of separate prefill and decode instances has an autoscaler of its own, on the same
metric and target, unless ``roles`` names those that have one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from policies.scaling.metrics import check_metric, is_latency, total
from policies.scaling.replica_counts import (
    NS_PER_S,
    Due,
    HeldCounts,
    ReplicaCounts,
    period_ns,
    positive,
    serving_count,
)
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import Signals

ROLES: Final = ("both", "prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """At most so many pods, or so many per cent of them if that is more, in ``period_s``."""

    pods: int
    percent: float = 0.0
    period_s: float = 15.0

    def __post_init__(self) -> None:
        if self.pods < 0 or self.percent < 0 or self.pods + self.percent <= 0:
            raise ValueError("pods and percent must be 0 or more, one of them above 0")
        positive("period_s", self.period_s)

    def most(self, start: int) -> int:
        """The largest change from so many pods."""
        return max(self.pods, ceil(start * self.percent / 100))


class Behaviour:
    """How fast an autoscaler may follow its recommendations (``behavior`` of the HPA).

    Not below the largest recommendation of the last ``stabilisation_s``, and no faster than ``up`` and
    ``down`` within their periods; ``down`` None: at once.
    """

    def __init__(self, up: Pace, stabilisation_s: float, down: Pace | None = None) -> None:
        if not 0 <= stabilisation_s <= 3600:
            raise ValueError(f"stabilisation_s is {stabilisation_s}, and must be from 0 to 3600")
        self._up, self._down = up, down
        self._held = HeldCounts(round(stabilisation_s * NS_PER_S))
        self._changed: dict[tuple[str, str], deque[tuple[int, int]]] = {}  # time, change of the number

    def allowed(self, view: ScalingView, role: RoleView, recommended: int) -> int:
        """The number of instances that may be set now."""
        changed, now_ns = self._changed.setdefault((view.model, role.role), deque()), view.now_ns
        supply, count = role.supply, self._held.held(view, role, recommended)
        if count > supply:
            start = supply - self._in_period(changed, now_ns, self._up)
            count = max(supply, min(count, start + self._up.most(start)))
        elif count < supply and self._down is not None:
            start = supply + self._in_period(changed, now_ns, self._down, -1)
            count = min(supply, max(count, start - self._down.most(start)))
        if count != supply:
            changed.append((now_ns, count - supply))
        return count

    def _in_period(self, changed: deque[tuple[int, int]], now_ns: int, pace: Pace, sign: int = 1) -> int:
        """Pods added (sign -1: removed) in the current period of ``pace``; forgets what no period needs."""
        longest_s = max(self._up.period_s, self._down.period_s if self._down else 0.0)
        while changed and changed[0][0] <= now_ns - round(longest_s * NS_PER_S):
            changed.popleft()
        begin_ns = now_ns - round(pace.period_s * NS_PER_S)
        return sum([sign * change for at_ns, change in changed if at_ns > begin_ns and sign * change > 0])


class Hpa:
    """One autoscaler for each role: desired = ceil(instances x metric / target)."""

    reads_signals = True

    def __init__(
        self,
        *,
        metric: str = "waiting",
        target: float = 5.0,
        roles: Sequence[str] = ROLES,
        sync_s: float = 15.0,
        tolerance: float = 0.1,
        up_pods: int = 4,
        up_percent: float = 100.0,
        stabilisation_s: float = 300.0,
    ) -> None:
        """``metric``: see ``policies.scaling.metrics``; ``target``: per instance, latencies in ms."""
        self._metric, self._target = check_metric(metric), positive("target", target)
        self.metrics_read = (metric,)
        if isinstance(roles, str) or not set(roles) <= set(ROLES) or not roles:
            raise ValueError(f"roles is {roles}, and must be a list of {', '.join(ROLES)}")
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}, and must be 0 or more and below 1")
        self._roles, self._tolerance = tuple(roles), tolerance
        self.period_s = sync_s
        self._due = Due(period_ns("sync_s", sync_s))
        self.no_change_until_ns = self._due.next_ns
        self._behaviour = Behaviour(Pace(pods=up_pods, percent=up_percent), stabilisation_s)

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Follow the metric, once per ``sync_s``."""
        if not self._due.is_due(view):
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            if role.role in self._roles and role.supply:
                wanted, reason = self._recommended(view.signals, role)
                counts.set(role, self._behaviour.allowed(view, role, wanted), reason)
        return counts.with_first()

    def _recommended(self, signals: Signals | None, role: RoleView) -> tuple[int, str]:
        amount = None if signals is None else total(self._metric, signals, role.role)
        measured = serving_count(role)
        if amount is None or not measured:
            return role.supply, f"{self._metric} is not known"
        mean = amount if is_latency(self._metric) else amount / measured
        ratio = mean / self._target
        reason = f"{self._metric} is {mean:.4g} per instance of {measured}, the target {self._target:g}"
        if is_latency(self._metric):
            reason = f"{self._metric} is {mean:.4g}, the target {self._target:g}"
        if abs(ratio - 1) <= self._tolerance:
            return role.supply, reason
        # Instances that do not serve yet count as 0 when scaling up, and as at the target when scaling down.
        starting = role.supply - measured
        shared = 0 if is_latency(self._metric) else starting
        again = (ratio * measured + (shared if ratio < 1 else 0)) / (measured + shared)
        if abs(again - 1) <= self._tolerance or (again > 1) != (ratio > 1):
            return role.supply, reason
        wanted = ceil(again * (measured + starting))
        if (wanted < role.supply) == (ratio > 1):
            return role.supply, reason
        return max(1, wanted), reason
