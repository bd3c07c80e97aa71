"""Memory in which a worker's tensors lie: an arena that peers read, or the heap when nobody does."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import torch

# (offset in the arena, size in bytes): what a transport reads from or writes to.
ByteRange = tuple[int, int]


class Region(Protocol):
    """A part of an arena."""

    @property
    def offset(self) -> int:
        """Of its first byte."""

    @property
    def size_bytes(self) -> int:
        """Its length."""


class Allocator(Protocol):
    """What is needed of an arena. ``take`` raises when no gap is large enough."""

    @property
    def buffer(self) -> memoryview:
        """All its bytes, writable."""

    def take(self, size_bytes: int) -> Any:
        """A region of its own until it is given back."""

    def give(self, region: Any) -> None:
        """The region is free again."""


class Memory(Protocol):
    """Gives regions, and the bytes of a region as a tensor on the device that computes."""

    def take(self, size_bytes: int) -> Region: ...
    def give(self, region: Region) -> None: ...
    def tensor(self, region: Region) -> torch.Tensor: ...
    def to_device(self, ranges: Iterable[ByteRange]) -> None: ...
    def to_host(self, ranges: Iterable[ByteRange]) -> None: ...


class ArenaMemory:
    """An arena in host memory. On another device than the CPU tensors lie in a block as large as the arena.

    Transports see the host's bytes only: what they have brought is copied `to_device` before it is used,
    what they are to read `to_host` before. On the CPU both are the same bytes, and nothing is copied.
    """

    def __init__(self, arena: Allocator, device: str = "cpu") -> None:
        self._arena = arena
        self._host = torch.frombuffer(arena.buffer, dtype=torch.uint8)
        on_cpu = torch.device(device).type == "cpu"
        self._bytes = self._host if on_cpu else torch.zeros_like(self._host, device=device)

    def take(self, size_bytes: int) -> Region:
        """A region of the arena; raises when none is free that is large enough."""
        region: Region = self._arena.take(size_bytes)
        return region

    def give(self, region: Region) -> None:
        """The region is free again."""
        self._arena.give(region)

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region on the device, uint8; no copy."""
        return self._bytes[region.offset : region.offset + region.size_bytes]

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """These bytes have come from a peer, and are to be computed with."""
        if self._bytes is not self._host:
            for offset, size_bytes in ranges:
                self._bytes[offset : offset + size_bytes].copy_(self._host[offset : offset + size_bytes])

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """These bytes are to be read by a peer."""
        if self._bytes is not self._host:
            for offset, size_bytes in ranges:
                self._host[offset : offset + size_bytes].copy_(self._bytes[offset : offset + size_bytes])


class HeapRegion(NamedTuple):
    """A tensor of its own. Its offset means nothing to anybody else."""

    offset: int
    size_bytes: int
    tensor: torch.Tensor


class HeapMemory:
    """Every region is a tensor of its own; for a worker whose state nobody reads."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def take(self, size_bytes: int) -> HeapRegion:
        """A tensor of its own."""
        return HeapRegion(0, size_bytes, torch.empty(size_bytes, dtype=torch.uint8, device=self._device))

    def give(self, region: Region) -> None:
        """It goes with the last one that has it."""

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8."""
        assert isinstance(region, HeapRegion)
        return region.tensor

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing comes from peers."""

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing goes to peers."""
