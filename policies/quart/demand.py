"""Parts that stage scalers share: replicas by request rate, whom to stop, and when to look again."""

from math import ceil

from serving.protocols.stages import StageReplicaView, StageView, StopReplicas

NS_PER_S = 1_000_000_000


def by_rate(arrival_per_s: float, replica_per_s: float, utilization: float) -> int:
    """Replicas that are busy for at most this share of time; 1 or more."""
    return max(1, ceil(arrival_per_s / (replica_per_s * utilization) - 1e-9))


def least_busy(stage: StageView, count: int) -> tuple[StageReplicaView, ...]:
    """Serving replicas: fewest requests first, then the newest."""
    serving = [one for one in stage.replicas if one.state == "serving"]
    return tuple(sorted(serving, key=lambda one: (one.outstanding, -one.id))[:count])


def stop(stage: StageView, count: int, reason: str) -> tuple[StopReplicas, ...]:
    """``count`` of its serving replicas go, but none of a stage's last that serves."""
    gone = least_busy(stage, max(min(count, stage.serving - 1, stage.supply - stage.minimum), 0))
    if not gone:
        return ()
    return (StopReplicas(stage.index, tuple([one.id for one in gone]), reason),)


class Periods:
    """Says when a period has passed since it last said so."""

    __slots__ = ("_last_ns", "_period_ns")

    def __init__(self, period_s: float) -> None:
        self._period_ns = round(period_s * NS_PER_S)
        self._last_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Whether it is time; then the next period begins."""
        if self._last_ns is not None and now_ns - self._last_ns < self._period_ns:
            return False
        self._last_ns = now_ns
        return True
