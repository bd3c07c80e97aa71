"""Parts that stage scalers share: replicas by request rate, which replicas to stop, when to decide again."""

from collections import deque
from math import ceil
from typing import Literal

from serving.protocols.stages import PipelineView, StageReplicaView, StageView, StopReplicas

NS_PER_S = 1_000_000_000
Sizing = Literal[
    "utilization",  # replicas are busy for at most a share of the time
    "slo",  # the fewest replicas that keep the SLO by Erlang C: the cost is least, the share follows
]


def targets_s(view: PipelineView, target_s: float = 0.0) -> tuple[float, ...]:
    """The time a request may take at each stage: ``target_s``, or the SLO divided by execution time.

    Without an SLO a request may take twice its execution time. The least target is a pass and a tenth of it:
    below that no number of replicas helps, and every stage would grow for ever.
    """
    total_s = sum([stage.exec_s for stage in view.stages])
    slack = (view.slo_s or 2 * total_s) / total_s
    return tuple([max(target_s or slack * stage.exec_s, 1.1 * stage.service_s) for stage in view.stages])


def by_rate(arrival_per_s: float, replica_per_s: float, utilization: float) -> int:
    """Replicas that are busy for at most ``utilization`` of the time; 1 or more."""
    return max(1, ceil(arrival_per_s / (replica_per_s * utilization) - 1e-9))


def least_busy(stage: StageView, count: int) -> tuple[StageReplicaView, ...]:
    """Serving replicas to stop first: those with fewest requests, then the newest."""
    serving = [replica for replica in stage.replicas if replica.state == "serving"]
    return tuple(sorted(serving, key=lambda replica: (replica.outstanding, -replica.id))[:count])


def stop(stage: StageView, count: int, reason: str) -> tuple[StopReplicas, ...]:
    """Stop ``count`` of the stage's serving replicas, but never its last serving one."""
    stopped = least_busy(stage, max(min(count, stage.serving - 1, stage.supply - stage.minimum), 0))
    if not stopped:
        return ()
    return (StopReplicas(stage.index, tuple([replica.id for replica in stopped]), reason),)


class Periods:
    """Reports when a period has passed since the last one."""

    __slots__ = ("_last_ns", "_period_ns")

    def __init__(self, period_s: float) -> None:
        self._period_ns = round(period_s * NS_PER_S)
        self._last_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Whether the period has passed; if so, the next one begins."""
        if self._last_ns is not None and now_ns - self._last_ns < self._period_ns:
            return False
        self._last_ns = now_ns
        return True


class History:
    """Values of the last ``span_s`` seconds by the time of the views."""

    __slots__ = ("_span_ns", "_values")

    def __init__(self, span_s: float) -> None:
        self._span_ns = round(span_s * NS_PER_S)
        self._values: deque[tuple[int, float]] = deque()

    def add(self, now_ns: int, value: float) -> None:
        """Add a value; drop values older than the span."""
        self._values.append((now_ns, value))
        while self._values[0][0] <= now_ns - self._span_ns:
            self._values.popleft()

    @property
    def most(self) -> float:
        """The largest value."""
        return max(value for _, value in self._values)

    @property
    def weighted(self) -> float:
        """The mean in which the first value counts once, the second twice and so on."""
        total = sum(rank * value for rank, (_, value) in enumerate(self._values, 1))
        return total / (len(self._values) * (len(self._values) + 1) / 2)

    @property
    def slope_per_s(self) -> float:
        """Change per second from the first to the last; 0 with one value."""
        (first_ns, first), (last_ns, last) = self._values[0], self._values[-1]
        return (last - first) / ((last_ns - first_ns) / NS_PER_S) if last_ns > first_ns else 0.0
