"""Which actions the simulated world carries out, with a data plane and without."""

from collections.abc import Sequence
from typing import Final

from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.driver import Control
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event

SERVING: Final[frozenset[type]] = frozenset(
    (Assign, Reject, Fail, Run, Interrupt, Preempt, Detach, Migrate, JoinBatch, SwitchRole, Wake)
)
MOVING: Final[frozenset[type]] = frozenset((AllocateGpus, ReleaseGpus, Load, StopLoad, Send, StopSend))


def carries_out(data_plane: bool) -> frozenset[type]:
    """The classes of the actions that it carries out."""
    return SERVING | MOVING if data_plane else SERVING


class Masked:
    """A controller before a driver that carries out less than it could (``Control``)."""

    def __init__(self, inner: Control, able: frozenset[type], name: str) -> None:
        """``able``: what it carries out; ``name``: what the user calls it."""
        self._inner, self._able, self._name = inner, able, name
        self.elastic: object = getattr(inner, "elastic", None)
        self.step_counts: object = getattr(inner, "step_counts", None)

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """The controller's answer. Raises UserError when the driver cannot carry it out."""
        actions = self._inner.handle(now_ns, event)
        for action in actions:
            if type(action) not in self._able:
                raise UserError(
                    f"the controller asks for {type(action).__name__} at {now_ns} ns, which a driver with "
                    f"driver.carries_out={self._name} does not carry out: add it to the list, or write "
                    "another system"
                )
        return actions
