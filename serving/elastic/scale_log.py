"""The log of decisions about instances and of their results."""

from serving.elastic.instances import Instance
from serving.protocols.scaling import Obstacle, ScaleDecision, ScaleEvent


class ScaleLog:
    """``events``: all events in order, each with its reason."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[ScaleEvent] = []

    def decided(self, now_ns: int, decision: ScaleDecision, replica: int, reason: str) -> None:
        """Log that a decision is carried out with this replica."""
        event = ScaleEvent(
            now_ns, decision.act, model=decision.model, role=decision.role, replica=replica, reason=reason
        )
        self.events.append(event)

    def happened(self, now_ns: int, act: str, instance: Instance, reason: str) -> None:
        """Log a change without a decision (a load ended, GPUs were freed or lost)."""
        replica = instance.replica
        self.events.append(
            ScaleEvent(
                now_ns, act, model=replica.model, role=instance.role, replica=replica.id, reason=reason
            )
        )

    def short(self, now_ns: int, decision: ScaleDecision, reason: str, obstacle: Obstacle) -> None:
        """Log that wanted instances cannot start."""
        event = ScaleEvent(
            now_ns,
            "shortage",
            model=decision.model,
            role=decision.role,
            replica=-1,
            reason=reason,
            obstacle=obstacle,
        )
        self.events.append(event)
