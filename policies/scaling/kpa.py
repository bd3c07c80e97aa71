"""Knative's autoscaler (KPA) and AIBrix's APA, on concurrency or another total.

KPA: stable and panic windows, Knative's defaults (knative.dev, "Configuring autoscaling"); AIBrix runs the
same algorithm with windows of 180 and 60 s (pkg/controller/podautoscaler/algorithm). APA: a band around the
target, the same source.
"""

from collections import deque
from math import ceil, floor

from policies.scaling.metrics import check_metric, is_latency, total
from policies.scaling.replica_counts import Due, ReplicaCounts, period_ns, positive, serving_count
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView


def _no_latency(metric: str) -> str:
    if is_latency(check_metric(metric)):
        raise ValueError(f"metric is {metric}, a latency: write a total, such as concurrency")
    return metric


class _Window:
    """Totals of a metric, each with the time of its scrape."""

    def __init__(self, span_ns: int) -> None:
        self._span_ns = span_ns
        self._totals = deque[tuple[int, float]]()

    def add(self, at_ns: int, amount: float) -> None:
        if not self._totals or self._totals[-1][0] < at_ns:
            self._totals.append((at_ns, amount))
        while self._totals[0][0] <= at_ns - self._span_ns:
            self._totals.popleft()

    def mean(self, span_ns: int) -> float:
        """Mean of the totals of the last ``span_ns`` before the newest."""
        begin_ns = self._totals[-1][0] - span_ns
        amounts = [amount for at_ns, amount in self._totals if at_ns > begin_ns]
        return sum(amounts) / len(amounts)


class Kpa:
    """Follow the mean of the stable window; in a burst that of the panic window, and then never down.

    A panic begins when the panic window wants ``panic_threshold`` times the instances that serve, and ends
    when a whole stable window has passed without that.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        metric: str = "concurrency",
        target: float = 16.0,
        tick_s: float = 2.0,
        stable_s: float = 60.0,
        panic_s: float = 6.0,
        panic_threshold: float = 2.0,
        max_up_rate: float = 1000.0,
        max_down_rate: float = 2.0,
    ) -> None:
        """``target``: per instance, utilisation included (Knative: 70 % of the container's concurrency)."""
        self._metric, self._target = _no_latency(metric), positive("target", target)
        self.metrics_read = (metric,)
        self._stable_ns, self._panic_ns = period_ns("stable_s", stable_s), period_ns("panic_s", panic_s)
        if not 0 < self._panic_ns <= self._stable_ns or panic_threshold < 1:
            raise ValueError("panic_s must be at most stable_s, and panic_threshold 1 or more")
        if max_up_rate <= 1 or max_down_rate <= 1:
            raise ValueError("max_up_rate and max_down_rate must be above 1")
        self._threshold, self._up, self._down = panic_threshold, max_up_rate, max_down_rate
        self.period_s = self.scrape_s = tick_s
        self._due = Due(period_ns("tick_s", tick_s))
        self.no_change_until_ns = self._due.next_ns
        self._windows: dict[tuple[str, str], _Window] = {}
        self._panics: dict[tuple[str, str], tuple[int, int]] = {}  # since when, most instances wanted

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Follow the windows, once per ``tick_s``; a model without instances gets one at once."""
        counts = ReplicaCounts(view)
        due = self._due.is_due(view)
        for role in view.roles:
            if due and view.signals is not None and role.supply:
                amount = total(self._metric, view.signals, role.role)
                self._follow(view, role, amount or 0.0, counts)
        return counts.with_first()

    def _follow(self, view: ScalingView, role: RoleView, amount: float, counts: ReplicaCounts) -> None:
        assert view.signals is not None
        key, ready = (view.model, role.role), max(1, serving_count(role))
        window = self._windows.setdefault(key, _Window(self._stable_ns))
        window.add(view.signals.scraped_ns, amount)
        most, least = ceil(self._up * ready), floor(ready / self._down)
        stable = min(most, max(least, ceil(window.mean(self._stable_ns) / self._target)))
        panic = min(most, max(least, ceil(window.mean(self._panic_ns) / self._target)))
        wanted, mode = stable, "stable"
        if panic >= self._threshold * ready:
            self._panics[key] = view.now_ns, max(panic, self._panics.get(key, (0, 0))[1])
        if key in self._panics:
            since_ns, before = self._panics[key]
            if view.now_ns - since_ns > self._stable_ns:
                del self._panics[key]
            else:
                wanted, mode = max(before, stable, panic, role.supply), "panic"
        reason = (
            f"{mode} window: {self._metric} {amount:.4g} in all, the target {self._target:g} per instance"
        )
        counts.set(role, wanted if role.minimum == 0 else max(1, wanted), reason)


class Apa:
    """AIBrix's APA: up above target x (1 + ``up``), down below target x (1 - ``down``), at most by a factor.

    The source's fluctuation tolerances are parameters of an object; 0.1 and 0.2 are its defaults.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        metric: str = "concurrency",
        target: float = 16.0,
        period_s: float = 15.0,
        up: float = 0.1,
        down: float = 0.2,
        max_up_rate: float = 2.0,
        max_down_rate: float = 2.0,
    ) -> None:
        """``target``: of each instance."""
        self._metric, self._target = _no_latency(metric), positive("target", target)
        self.metrics_read = (metric,)
        if up < 0 or not 0 <= down < 1 or max_up_rate <= 1 or max_down_rate <= 1:
            raise ValueError("up must be 0 or more, down from 0 up to 1, and both rates above 1")
        self._up, self._down, self._rates = up, down, (max_up_rate, max_down_rate)
        self.period_s = period_s
        self._due = Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._due.next_ns

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Follow the metric outside its band."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            ready = serving_count(role)
            amount = total(self._metric, signals, role.role) if ready else None
            if amount is None:
                continue
            ratio = amount / ready / self._target
            reason = f"{self._metric} is {amount / ready:.4g} per instance, the target {self._target:g}"
            if ratio > 1 + self._up:
                counts.set(
                    role, max(role.supply, min(ceil(ready * ratio), ceil(ready * self._rates[0]))), reason
                )
            elif ratio < 1 - self._down:
                least = max(1, floor(ready / self._rates[1]))
                counts.set(role, min(role.supply, max(ceil(ready * ratio), least)), reason)
        return counts.with_first()
