"""What was decided about instances, and what came of it."""

from serving.elastic.instances import Instance
from serving.protocols.scaling import Obstacle, ScaleDecision, ScaleEvent


class ScaleLog:
    """``events``: all of them in order, each with its reason."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[ScaleEvent] = []

    def decided(self, now_ns: int, decision: ScaleDecision, replica: int, reason: str) -> None:
        """A decision is carried out with this replica."""
        event = ScaleEvent(now_ns, decision.act, decision.model, decision.role, replica, reason)
        self.events.append(event)

    def happened(self, now_ns: int, act: str, instance: Instance, reason: str) -> None:
        """An instance changed without a decision (its load ended, its GPUs were freed or lost)."""
        replica = instance.replica
        self.events.append(ScaleEvent(now_ns, act, replica.model, instance.role, replica.id, reason))

    def short(self, now_ns: int, decision: ScaleDecision, reason: str, obstacle: Obstacle) -> None:
        """Instances were wanted and do not come."""
        event = ScaleEvent(now_ns, "shortage", decision.model, decision.role, -1, reason, obstacle)
        self.events.append(event)
