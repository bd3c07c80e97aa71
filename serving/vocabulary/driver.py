"""What a driver gets beside its world: the control plane, and the journal that records both."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from serving.vocabulary.actions import Action
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event
from serving.vocabulary.request import Request
from serving.vocabulary.step_counts import StepCounts


class StallRule(Protocol):
    """Tells a simulation when only looks of the load monitor are left, which serve no request."""

    def is_stalled(self, now_ns: int, events: int, alone: bool) -> bool:
        """Whether the run is stalled, at a look. ``events``: handled before; ``alone``: no other is due."""

    def error(self, requests: Sequence[Request]) -> UserError:
        """The error about ``requests``, which will never be served."""


class ReplicaOutlook(Protocol):
    """What a driver reads from the part of the control plane that loads, adds and removes replicas."""

    @property
    def has_rounds(self) -> bool:
        """Whether it needs ``Opened`` also in a world without parameters to load: its rounds begin then."""

    def stall_rule(self) -> StallRule:
        """A new rule for one run."""


class Control(Protocol):
    """The control plane as drivers see it, such as ``serving.controller.Controller``.

    ``step_counts``: a driver registers itself there; ``elastic``: None if nothing loads or moves replicas.
    """

    @property
    def step_counts(self) -> StepCounts | None: ...

    @property
    def elastic(self) -> ReplicaOutlook | None: ...

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """Return the actions that follow from the event."""


class JournalSink(Protocol):
    """The journal that a driver writes to."""

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Write one event and its actions; ``counts``: the driver's answers to step queries meanwhile."""


def names_of(actions: Iterable[type]) -> list[str]:
    """Return the sorted class names of actions; a journal's header lists those that a driver carries out."""
    return sorted([kind.__name__ for kind in actions])
