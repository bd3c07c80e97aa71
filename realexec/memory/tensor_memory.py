"""Memory for a worker's tensors: an arena that peers read, or the heap if no peer reads them."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch

from realexec.memory.device import Device, SameMemory

# (offset in the arena, size in bytes): a range that a transport reads or writes.
ByteRange = tuple[int, int]


class Region(Protocol):
    """A part of an arena."""

    @property
    def offset(self) -> int:
        """Offset of its first byte."""

    @property
    def size_bytes(self) -> int:
        """Its length."""


class Allocator(Protocol):
    """The methods of an arena used here. ``take`` raises when no gap is large enough."""

    @property
    def buffer(self) -> memoryview:
        """All its bytes, writable."""

    def take(self, size_bytes: int) -> Any:
        """Allocate a region; it stays allocated until it is given back."""

    def give(self, region: Any) -> None:
        """Free the region."""


class Memory(Protocol):
    """Allocates regions and gives their bytes as tensors: ``tensor`` for computing, ``host`` for disks and
    peers. Both are the same bytes unless the memory is ``apart``."""

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
    def copy_stream(self) -> AbstractContextManager[None]: ...


class HostMemory:
    """An arena in the host's memory, for data that is not computed with: copies of whole models."""

    apart = direct = False

    def __init__(self, arena: Allocator) -> None:
        self._arena = arena
        self._host = torch.frombuffer(arena.buffer, dtype=torch.uint8)

    def take(self, size_bytes: int) -> Region:
        """Allocate a region of the arena; raises if no free gap is large enough."""
        region: Region = self._arena.take(size_bytes)
        return region

    def give(self, region: Region) -> None:
        """Free the region."""
        self._arena.give(region)

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8; no copy."""
        return self.host(region)

    def host(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8; no copy."""
        return self._host[region.offset : region.offset + region.size_bytes]

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: these bytes stay on the host."""

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: these bytes are on the host."""

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: a transport has written these bytes to the host's memory."""

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: a transport reads these bytes from the host's memory."""

    def copy_stream(self) -> AbstractContextManager[None]:
        """Return a context for copies within the host's memory."""
        return nullcontext()


class ArenaMemory(HostMemory):
    """An arena, and the device that computes. If the device has its own memory, tensors lie there: in a block
    that mirrors the arena from byte ``first`` on. Bytes before ``first`` belong to the host alone.

    Most transports access only the host's bytes: bytes that they brought are copied `to_device` before use,
    bytes that they will read are first copied `to_host`. On the CPU both are the same bytes and nothing is
    copied. A ``direct`` transport needs no copies either: it reads the peer's block and writes into this one.
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
        """Return the bytes of the region on the device, uint8, without a copy."""
        begin = region.offset - self._first
        if begin < 0:
            raise ValueError(f"a region at {region.offset} is the host's alone, up to {self._first}")
        return self._bytes[begin : begin + region.size_bytes]

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """Copy bytes that came from a peer or a disk to the device, to compute with them."""
        self._copy(ranges, inwards=True)

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """Copy bytes to the host, for a peer to read them."""
        self._copy(ranges, inwards=False)

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Make bytes that a transport has brought ready to compute with."""
        if not self.direct:
            self.to_device(ranges)

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Make these bytes readable by a peer, as they are after all computations so far."""
        if not self.direct:
            self.to_host(ranges)
        elif self.apart:
            with self.copy_stream():
                pass

    @property
    def pinned(self) -> bool | None:
        """Whether a GPU's driver has pinned the arena's pages; None: there is no GPU."""
        return self._device.pinned

    def close(self) -> None:
        """Unpin the pages from the GPU's driver; tensors stay valid."""
        self._device.close()

    def shared(self) -> dict[str, Any]:
        """Return what a peer on this host needs to read the block: ``first``, and how its device opens it."""
        return {"first": self._first, "block": self._device.share(self._bytes)}

    def reached(self, handle: dict[str, Any], arena: torch.Tensor) -> torch.Tensor:
        """Open a peer's block from its `shared`; ``arena``: all bytes of the peer's arena."""
        return arena[handle["first"] :] if handle["block"] is None else self._device.reach(handle["block"])

    def bytes_of(self, arena: Allocator) -> torch.Tensor:
        """Return all bytes of another arena; they stay mapped while the tensor exists."""
        return torch.frombuffer(arena.buffer, dtype=torch.uint8)

    def place(self, offset: int, size_bytes: int) -> torch.Tensor:
        """Return these bytes of the arena where they are computed with; host-only bytes, on the host."""
        block, begin = (self._host, offset) if offset < self._first else (self._bytes, offset - self._first)
        return block[begin : begin + size_bytes]

    def copy_stream(self) -> AbstractContextManager[None]:
        """Return a context for copies between host and device."""
        return self._device.copy_stream()

    def wait(self) -> None:
        """Wait until the device has computed everything submitted so far."""
        self._device.wait()

    def _copy(self, ranges: Iterable[ByteRange], inwards: bool) -> None:
        if not self.apart:
            return
        with self.copy_stream():
            for offset, size_bytes in ranges:
                here = self._host[offset : offset + size_bytes]
                there = self._bytes[offset - self._first : offset - self._first + size_bytes]
                to, source = (there, here) if inwards else (here, there)
                to.copy_(source, non_blocking=True)


class HeapRegion(NamedTuple):
    """A region that is a tensor of its own. Its offset has no meaning for other processes."""

    offset: int
    size_bytes: int
    tensor: torch.Tensor


class HeapMemory:
    """Makes every region a tensor of its own; for a worker whose state no peer reads."""

    apart = direct = False

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def take(self, size_bytes: int) -> HeapRegion:
        """Allocate a tensor."""
        return HeapRegion(0, size_bytes, torch.empty(size_bytes, dtype=torch.uint8, device=self._device))

    def give(self, region: Region) -> None:
        """Do nothing: the tensor is freed with its last reference."""

    def tensor(self, region: Region) -> torch.Tensor:
        """The bytes of the region, uint8."""
        assert isinstance(region, HeapRegion)
        return region.tensor

    def host(self, region: Region) -> torch.Tensor:
        """Return the same bytes as `tensor`: copies from the host's memory go straight to them."""
        return self.tensor(region)

    def to_device(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: no bytes come from peers."""

    def to_host(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: no bytes go to peers."""

    def from_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: no bytes come from peers."""

    def for_peer(self, ranges: Iterable[ByteRange]) -> None:
        """Do nothing: no bytes go to peers."""

    def copy_stream(self) -> AbstractContextManager[None]:
        """Return a context for copies: they run in order with the computation."""
        return nullcontext()
