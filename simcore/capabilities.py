"""Which actions the simulated world carries out, with a data plane and without."""

from typing import Final

from serving.vocabulary.actions import (
    Adopt,
    Assign,
    Fail,
    Interrupt,
    Load,
    Place,
    Preempt,
    Reclaim,
    Reject,
    Run,
    Send,
    StopLoad,
    StopSend,
    Turn,
    Wake,
)

SERVING: Final[frozenset[type]] = frozenset(
    (Assign, Reject, Fail, Run, Interrupt, Preempt, Adopt, Turn, Wake)
)
MOVING: Final[frozenset[type]] = frozenset((Place, Reclaim, Load, StopLoad, Send, StopSend))


def carries_out(data_plane: bool) -> frozenset[type]:
    """The classes of the actions that it carries out."""
    return SERVING | MOVING if data_plane else SERVING
