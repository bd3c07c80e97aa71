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
    @property
    def direct(self) -> bool: ...
    def take(self, size_bytes: int) -> Region: ...
    def give(self, region: Region) -> None: ...
    def tensor(self, region: Region) -> torch.Tensor: ...
    def host(self, region: Region) -> torch.Tensor: ...
    def to_device(self, ranges: Iterable[ByteRange]) -> None: ...
    def to_host(self, ranges: Iterable[ByteRange]) -> None: ...
    def from_peer(self, ranges: Iterable[ByteRange]) -> None: ...
    def for_peer(self, ranges: Iterable[ByteRange]) -> None: ...
    def lane(self) -> AbstractContextManager[None]: ...


class HostMemory:
    """An arena in the host's memory, for what is not computed with: copies of whole models."""

    apart = direct = False

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

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """A transport has brought them here."""

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """A transport reads them here."""

    def lane(self) -> AbstractContextManager[None]:
        """Copies within the host's memory."""
        return nullcontext()


class ArenaMemory(HostMemory):
    """An arena, and a device that computes. Where that has memory of its own, tensors lie there: a block as
    large as the arena from its byte ``first`` on, for what lies before is the host's alone.

    Most transports see the host's bytes only: what they have brought is copied `to_device` before it is used,
    what they are to read `to_host` before. On the CPU both are the same bytes, and nothing is copied. Nor is
    where the transport is ``direct``: it reads the peer's block and writes into this one.
    """

    def __init__(
        self, arena: Allocator, device: Device | None = None, first: int = 0, direct: bool = False
    ) -> None:
        super().__init__(arena)
        self._device: Device = SameMemory() if device is None else device
        self._first, self.direct = first, direct
        self.size_bytes: int = self._host.numel()
        self._bytes = self._device.mirror(self._host, first, staged=not direct)
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

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """A transport has brought these bytes, and they are to be computed with."""
        if not self.direct:
            self.to_device(ranges)

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """A peer is to read these bytes, as they are after all that was computed so far."""
        if not self.direct:
            self.to_host(ranges)
        elif self.apart:
            with self.lane():
                pass

    @property
    def pinned(self) -> bool | None:
        """Whether a GPU's driver has pinned the arena's pages; None: there is no GPU."""
        return self._device.pinned

    def close(self) -> None:
        """The driver lets go of them; tensors stay valid."""
        self._device.close()

    def shared(self) -> dict[str, Any]:
        """What one peer of this host needs to read the block: ``first``, and how its device reaches it."""
        return {"first": self._first, "block": self._device.share(self._bytes)}

    def reached(self, told: dict[str, Any], arena: torch.Tensor) -> torch.Tensor:
        """A peer's block, of which this was `shared`; ``arena``: all bytes of the peer's arena."""
        return arena[told["first"] :] if told["block"] is None else self._device.reach(told["block"])

    def bytes_of(self, arena: Allocator) -> torch.Tensor:
        """All bytes of another arena; they stay mapped while the tensor is held."""
        return torch.frombuffer(arena.buffer, dtype=torch.uint8)

    def place(self, offset: int, size_bytes: int) -> torch.Tensor:
        """Where these bytes of the arena are computed with; what the host has alone, there."""
        block, begin = (self._host, offset) if offset < self._first else (self._bytes, offset - self._first)
        return block[begin : begin + size_bytes]

    def lane(self) -> AbstractContextManager[None]:
        """Copies between host and device."""
        return self._device.lane()

    def wait(self) -> None:
        """Returns when the device has computed all that it was given so far."""
        self._device.wait()

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

    apart = direct = False

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

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing comes from peers."""

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Nothing goes to peers."""

    def lane(self) -> AbstractContextManager[None]:
        """With what is computed."""
        return nullcontext()
