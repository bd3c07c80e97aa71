"""What a driver gets beside its world: the control that answers events, and the journal that records both."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event


class Control(Protocol):
    """Answers events, such as ``serving.controller.Controller``."""

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """Return the actions that follow from the event."""


class JournalSink(Protocol):
    """The journal that a driver writes to."""

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        """Write one event and its actions; ``told``: the driver's answers to step queries meanwhile."""


def names_of(actions: Iterable[type]) -> list[str]:
    """Return the sorted class names of actions; a journal's header lists those that a driver carries out."""
    return sorted([kind.__name__ for kind in actions])
