"""A wrapper of the controller for a driver that carries out only some of the actions."""

from collections.abc import Sequence

from serving.vocabulary.actions import Action
from serving.vocabulary.driver import Control
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event


class Masked:
    """Passes events to ``inner`` (``Control``); refuses actions that the driver lacks, which ends the run."""

    def __init__(self, inner: Control, able: frozenset[type], who: str, instead: str) -> None:
        """``able``: actions it carries out. ``who``: that driver, in words; ``instead``: what to write."""
        self._inner, self._able, self._who, self._instead = inner, able, who, instead
        self.elastic, self.step_counts = inner.elastic, inner.step_counts

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """The controller's answer. Raises UserError when the driver cannot carry it out."""
        actions = self._inner.handle(now_ns, event)
        for action in actions:
            if type(action) not in self._able:
                raise UserError(
                    f"the controller asks for {type(action).__name__} at {now_ns} ns, which {self._who} does "
                    f"not carry out: {self._instead}"
                )
        return actions
