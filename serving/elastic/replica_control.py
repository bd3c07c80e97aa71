"""What a controller asks of who brings parameters to replicas, and may add and remove some."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from serving.vocabulary.actions import Action

# What is done about an event of one type, which is the second argument.
Handler = Callable[[int, Any, list[Action]], None]


class ReplicaControl(Protocol):
    """``scales``: whether replicas come and go; else it is told of losses and of its own events only."""

    @property
    def scales(self) -> bool: ...

    def handlers(self) -> Mapping[type, Handler]:
        """The types of events that it alone handles."""

    def arrived(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """A request was let in."""

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """A replica reported, or gave KV away, and may be empty now."""

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """A replica is gone, or the GPUs that were its own; its requests have failed before."""
