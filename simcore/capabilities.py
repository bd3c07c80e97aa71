"""Which actions the simulated world carries out, with and without a data plane."""

from typing import Final

from serving.vocabulary.actions import (
    Abort,
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

SERVING: Final[frozenset[type]] = frozenset(
    (Assign, Reject, Fail, Run, Interrupt, Preempt, Detach, Migrate, JoinBatch, SwitchRole, Wake)
)
MOVING: Final[frozenset[type]] = frozenset((AllocateGpus, ReleaseGpus, Load, StopLoad, Send, StopSend))


def carries_out(data_plane: bool, clients_leave: bool = False) -> frozenset[type]:
    """The classes of the actions that the world carries out; ``clients_leave``: its clients may give up."""
    aborts = frozenset((Abort,)) if clients_leave else frozenset[type]()
    return SERVING | aborts | (MOVING if data_plane else frozenset())
