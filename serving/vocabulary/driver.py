"""What a driver is handed beside its world: who answers its events, and who writes both down."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event


class Control(Protocol):
    """Who answers events, such as ``serving.controller.Controller``."""

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """The actions that follow."""


class JournalSink(Protocol):
    """Where a driver writes the journal."""

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        """One event and what was answered; ``told``: what the driver was asked meanwhile, and said."""


def names_of(actions: Iterable[type]) -> list[str]:
    """The names of classes of actions, sorted, as a journal's header tells what a driver carries out."""
    return sorted([kind.__name__ for kind in actions])
