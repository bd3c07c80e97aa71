"""Planned faults: what is lost at which time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hwmodels.topology.topology import Topology

What = Literal["replica", "host", "link", "ssd", "scheduler"]


@dataclass(frozen=True, slots=True)
class Fault:
    """number: which replica, host, cable (``cables_of``) or host of an SSD is lost.

    None: one of those that exist at that time; ``share`` (from 0 up to below 1) selects it, in the order of
    their numbers. ``duration_ns``: how long the global scheduler is lost; other parts do not come back.
    """

    at_ns: int
    what: What
    number: int | None = None
    share: float = 0.0
    duration_ns: int = 0


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """``faults`` in order of time, possibly endless. ``gpus_of``: the GPUs of each initial replica.

    ``topology``: None if it is unknown which host has which GPU; then only replicas can be lost. ``groups``:
    replicas that are ranks of one data-parallel group, and so are lost together. ``notice_ns``: how long
    before the loss of a replica or host the controller receives a notice.
    """

    faults: Iterable[Fault]
    gpus_of: Sequence[tuple[int, ...]]
    topology: Topology | None
    groups: Sequence[tuple[int, ...]] = ()
    notice_ns: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """The result of a fault. which: a number, or the name of a cable; replicas: lost with it.

    nothing: why nothing was lost; empty if something was. back_ns: when the global scheduler worked again.
    """

    at_ns: int
    what: What
    which: str
    replicas: tuple[int, ...] = ()
    nothing: str = ""
    back_ns: int | None = field(default=None, kw_only=True)
