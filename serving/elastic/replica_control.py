"""The interface between a controller and the part that loads, adds and removes replicas."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from serving.vocabulary.actions import Action
from serving.vocabulary.driver import ReplicaOutlook
from serving.vocabulary.request import Request

# Handles an event of one type, which is the second argument.
Handler = Callable[[int, Any, list[Action]], None]


class ReplicaControl(ReplicaOutlook, Protocol):
    """``scales``: whether replicas come and go; if not, only losses and its own events are reported to it."""

    @property
    def scales(self) -> bool: ...

    @property
    def touched(self) -> set[str]:
        """Models whose requests have changed: the controller adds them, if ``scales``."""

    def handlers(self) -> Mapping[type, Handler]:
        """The handlers of the event types that only this object handles."""

    def arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        """A request was admitted."""

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """A replica reported, or sent KV away, and may be empty now."""

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """A replica is lost, or GPUs it used to own; its requests have failed before this call."""
