"""Memory in which a worker's tensors lie: an arena that peers read, or the heap when nobody does."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch

from realexec.memory.device import Device, SameMemory

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
    """Gives regions, and the bytes of a region as tensors: where they are computed with (``tensor``), and
    where disks and peers bring and read them (``host``). Both are the same ones unless it is ``apart``."""

    @property
    def apart(self) -> bool: ...
    def take(self, size_bytes: int) -> Region: ...
    def give(self, region: Region) -> None: ...
    def tensor(self, region: Region) -> torch.Tensor: ...
    def host(self, region: Region) -> torch.Tensor: ...
    def to_device(self, ranges: Iterable[ByteRange]) -> None: ...
    def to_host(self, ranges: Iterable[ByteRange]) -> None: ...
    def lane(self) -> AbstractContextManager[None]: ...


class HostMemory:
    """An arena in the host's memory, for what is not computed with: copies of whole models."""

    apart = False

    def __init__(self, arena: Allocator) -> None:
        self._arena = arena
        self._host = torch.frombuffer(arena.buffer, dtype=torch.uint8)

    def take(self, size_bytes: int) -> Region:
        """A region of the arena; raises when none is free that is large enough."""
        region: Region = self._arena.take(size_bytes)
        return region

    def give(self, region: Region) -> None:
        """The region is free again."""
        self._arena.give(region)

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8; no copy."""
        return self.host(region)

    def host(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8; no copy."""
        return self._host[region.offset : region.offset + region.size_bytes]

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """They stay here."""

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """They are here."""

    def lane(self) -> AbstractContextManager[None]:
        """Copies within the host's memory."""
        return nullcontext()


class ArenaMemory(HostMemory):
    """An arena, and a device that computes. Where that has memory of its own, tensors lie there: a block as
    large as the arena from its byte ``first`` on, for what lies before is the host's alone.

    Transports see the host's bytes only: what they have brought is copied `to_device` before it is used,
    what they are to read `to_host` before. On the CPU both are the same bytes, and nothing is copied.
    """

    def __init__(self, arena: Allocator, device: Device | None = None, first: int = 0) -> None:
        super().__init__(arena)
        self._device: Device = SameMemory() if device is None else device
        self._first = first
        self._bytes = self._device.mirror(self._host, first)
        self.apart = self._bytes.data_ptr() != self._host[first:].data_ptr()

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region on the device, uint8; no copy."""
        begin = region.offset - self._first
        if begin < 0:
            raise ValueError(f"a region at {region.offset} is the host's alone, up to {self._first}")
        return self._bytes[begin : begin + region.size_bytes]

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """These bytes have come from a peer or a disk, and are to be computed with."""
        self._copy(ranges, inwards=True)

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """These bytes are to be read by a peer."""
        self._copy(ranges, inwards=False)

    def lane(self) -> AbstractContextManager[None]:
        """Copies between host and device."""
        return self._device.lane()

    def _copy(self, ranges: Iterable[ByteRange], inwards: bool) -> None:
        if not self.apart:
            return
        with self.lane():
            for offset, size_bytes in ranges:
                here = self._host[offset : offset + size_bytes]
                there = self._bytes[offset - self._first : offset - self._first + size_bytes]
                to, source = (there, here) if inwards else (here, there)
                to.copy_(source, non_blocking=True)


class HeapRegion(NamedTuple):
    """A tensor of its own. Its offset means nothing to anybody else."""

    offset: int
    size_bytes: int
    tensor: torch.Tensor


class HeapMemory:
    """Every region is a tensor of its own; for a worker whose state nobody reads."""

    apart = False

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

    def host(self, region: Region) -> torch.Tensor:
        """The same ones: a copy from the host's memory goes straight to them."""
        return self.tensor(region)

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing comes from peers."""

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing goes to peers."""

    def lane(self) -> AbstractContextManager[None]:
        """With what is computed."""
        return nullcontext()
