"""Faults as they are planned: at which time what is lost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hwmodels.topology.topology import Topology

What = Literal["replica", "host", "link", "ssd"]
WHATS: Final[tuple[What, ...]] = ("replica", "host", "link", "ssd")


@dataclass(frozen=True, slots=True)
class Fault:
    """number: which replica, host, cable (``cables_of``) or host of an SSD is lost.

    None: one of those there are then; ``share`` (from 0 up to below 1) says which, in the order of their
    numbers.
    """

    at_ns: int
    what: What
    number: int | None = None
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """``faults`` in order of time, maybe without end. ``gpus_of``: of the replicas of the start.

    ``topology``: None where it is not known which host has which GPU; then nothing but replicas is lost.
    ``groups``: replicas that are ranks of one data-parallel group, and so are lost together.
    ``notice_ns``: so long before a replica or a host is lost the controller is told of it.
    """

    faults: Iterable[Fault]
    gpus_of: Sequence[tuple[int, ...]]
    topology: Topology | None
    groups: Sequence[tuple[int, ...]] = ()
    notice_ns: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """What a fault came to. which: a number, or the name of a cable; replicas: that are lost with it.

    nothing: why nothing was lost; empty where something was.
    """

    at_ns: int
    what: What
    which: str
    replicas: tuple[int, ...] = ()
    nothing: str = ""
