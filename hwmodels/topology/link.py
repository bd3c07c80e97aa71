"""Data types: one direction of one link, and the locations of bytes."""

from dataclasses import dataclass
from typing import Final

LINK_KINDS: Final = ("ssd", "remote", "dram", "pcie", "pcie_switch", "nvlink", "nic", "leaf", "spine")


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link: the two directions of a cable are two links, so that full duplex does not interfere.

    name: unique, such as ``host0/gpu3 pcie in``. kind: one of ``LINK_KINDS``. capacity_bytes_per_s: of the
    datasheet; efficiency: the share of it that bytes of a transfer reach, above 0, at most 1; source: of both
    numbers.
    """

    name: str
    kind: str
    capacity_bytes_per_s: float
    efficiency: float
    source: str

    @property
    def rate_bytes_per_s(self) -> float:
        """Total rate of all transfers over it."""
        return self.capacity_bytes_per_s * self.efficiency


@dataclass(frozen=True, slots=True)
class Location:
    """A location of bytes. kind: ``gpu``, ``dram``, ``ssd``, ``gpu_ssd`` or ``remote``; number: which one.

    GPUs (and ``gpu_ssd``, the SSD bandwidth that belongs to one GPU) are counted over the cluster; ``dram``
    and ``ssd`` are counted by host; there is one ``remote`` store.
    """

    kind: str
    number: int


def gpu(index: int) -> Location:
    """The memory of a GPU."""
    return Location("gpu", index)


def dram(host: int) -> Location:
    """The memory of a host."""
    return Location("dram", host)


def ssd(host: int) -> Location:
    """The SSD (or the SSDs together) that a host's GPUs share."""
    return Location("ssd", host)


def gpu_ssd(index: int) -> Location:
    """The SSD bandwidth that belongs to one GPU, if the cluster gives it per GPU."""
    return Location("gpu_ssd", index)


REMOTE: Final = Location("remote", 0)
