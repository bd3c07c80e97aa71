"""One block of shared memory per process: it holds weights, KV and activations, and peers read it.

All its pages are allocated at the start: the first write to a page that is not allocated yet can take many
times as long as the copy itself, and would be measured as slow transport.
"""

import contextlib
import fcntl
import mmap
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from realexec.memory.shared_copies import SharedCopies
from serving.vocabulary.errors import UserError

ALIGN_BYTES: Final = 64  # a cache line, and enough for every dtype and vector width of torch
PAGE_BYTES: Final = mmap.PAGESIZE
# madvise(2) since Linux 5.14: make every page present and mapped now. Not in `mmap` before Python 3.13.
_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23


@dataclass(frozen=True, slots=True)
class Region:
    """A part of an arena."""

    offset: int
    size_bytes: int


class ArenaFull(Exception):
    """No gap of the arena is as large as the requested region."""


class Arena:
    """Shared memory with a first-fit allocator; only the process that created it allocates.

    After the last byte that users see lies one page with a flag: whether the owner still serves the arena.
    """

    def __init__(self, descriptor: int, size_bytes: int, handle: dict[str, Any], owned: bool) -> None:
        self.descriptor: int = descriptor
        self.size_bytes: int = size_bytes
        self._handle = handle
        self._owned = owned
        self._state_at = _whole_pages(size_bytes)
        self._map = mmap.mmap(descriptor, self._state_at + PAGE_BYTES)
        self._lock = threading.Lock()
        self._gaps: list[Region] = [Region(0, size_bytes)] if owned else []
        self._taken: dict[int, int] = {}

    @classmethod
    def create(
        cls, size_bytes: int, touched_bytes: int | None = None, copies: SharedCopies | None = None
    ) -> "Arena":
        """Create an arena of zeros; UserError if the machine does not have enough memory.

        ``touched_bytes``: how many of its first bytes are allocated at the start, None: all. The others take
        no memory until they are written. ``copies``: memory that takes the place of its first bytes.
        """
        if size_bytes < 1:
            raise ValueError(f"an arena has at least 1 byte, not {size_bytes}")
        whole = _whole_pages(size_bytes) + PAGE_BYTES
        touched_bytes = whole if touched_bytes is None else min(_whole_pages(touched_bytes), whole)
        begin = 0 if copies is None else copies.size_bytes
        own_bytes = max(touched_bytes - begin, 0)
        _refuse_more_than_there_is(own_bytes)
        descriptor, path = _backing()
        try:
            os.ftruncate(descriptor, whole)
            if own_bytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, begin, own_bytes)
            status = os.fstat(descriptor)
            handle = {
                "path": path, "pid": os.getpid(), "device": status.st_dev, "inode": status.st_ino,
                "size_bytes": size_bytes, "touched_bytes": touched_bytes,
                "copies": None if copies is None else copies.handle,
            }  # fmt: skip
            _keep_size(descriptor)
            arena = cls(descriptor, size_bytes, handle, owned=True)
            if copies is not None:
                copies.lay_over(arena._map)
        except OSError as error:
            os.close(descriptor)
            raise _too_large(size_bytes, str(error)) from None
        arena._touch(_MADV_POPULATE_WRITE)
        arena._map[arena._state_at] = 1
        return arena

    @classmethod
    def attach(cls, handle: dict[str, Any], touched: bool = False) -> "Arena":
        """Open the arena of another process of this user on this host; OSError if it no longer exists.

        ``touched``: map now those of its bytes that were allocated at the start.
        """
        descriptor = os.open(handle["path"], os.O_RDWR | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            size_bytes = int(handle["size_bytes"])
            if (status.st_dev, status.st_ino) != (handle["device"], handle["inode"]):
                raise FileNotFoundError(f"{handle['path']} is no longer the same arena")
            if size_bytes < 1 or status.st_size != _whole_pages(size_bytes) + PAGE_BYTES:
                raise ValueError(f"the arena at {handle['path']} does not have {size_bytes} bytes")
            arena = cls(descriptor, size_bytes, dict(handle), owned=False)
            if handle["copies"] is not None:
                copies = SharedCopies.attach(handle["copies"], int(handle["copies"]["size_bytes"]))
                copies.lay_over(arena._map)
                copies.close()
        except BaseException:
            os.close(descriptor)
            raise
        if touched:
            arena._touch(_MADV_POPULATE_READ)
        return arena

    @property
    def handle(self) -> dict[str, Any]:
        """The argument for `attach` in another process, in JSON types."""
        return dict(self._handle)

    @property
    def buffer(self) -> memoryview:
        """All its bytes, writable."""
        return memoryview(self._map)[: self.size_bytes]

    @property
    def served(self) -> bool:
        """Whether its owner still lets others read it. Does not show that the owner was killed."""
        return self._map[self._state_at] == 1

    @property
    def free_bytes(self) -> int:
        """The sum of all gaps; alignment may make less of it usable."""
        with self._lock:
            return sum(gap.size_bytes for gap in self._gaps)

    def view(self, region: Region) -> memoryview:
        """The bytes of the region, writable."""
        return self.buffer[region.offset : region.offset + region.size_bytes]

    def take(self, size_bytes: int, align: int = ALIGN_BYTES) -> Region:
        """Reserve a region until `give`; it still holds the bytes that were last written there."""
        if size_bytes < 1 or align < 1:
            raise ValueError("a region has at least 1 byte and an alignment of at least 1")
        with self._lock:
            for position, gap in enumerate(self._gaps):
                begin = -(-gap.offset // align) * align
                after = gap.offset + gap.size_bytes - begin - size_bytes
                if after >= 0:
                    left = (
                        Region(gap.offset, begin - gap.offset),
                        Region(begin + size_bytes, after),
                    )
                    self._gaps[position : position + 1] = [part for part in left if part.size_bytes]
                    self._taken[begin] = size_bytes
                    return Region(begin, size_bytes)
            largest = max((gap.size_bytes for gap in self._gaps), default=0)
        raise ArenaFull(f"{size_bytes:,} bytes asked of an arena whose largest gap is {largest:,}")

    def give(self, region: Region) -> None:
        """Free a region that `take` returned."""
        with self._lock:
            if self._taken.get(region.offset) != region.size_bytes:
                raise ValueError(f"{region} is not taken")
            del self._taken[region.offset]
            self._gaps = _joined(sorted([*self._gaps, region], key=lambda gap: gap.offset))

    def retire(self) -> None:
        """Stop letting others read the arena; readers notice between two chunks."""
        self._map[self._state_at] = 0

    def close(self) -> None:
        """Unmap it here. Views that are still held, such as tensors, stay valid until they are released."""
        if self.descriptor < 0:
            return
        if self._owned:
            self.retire()
            with contextlib.suppress(OSError):
                if not self._handle["path"].startswith("/proc/"):
                    Path(self._handle["path"]).unlink()
        os.close(self.descriptor)
        self.descriptor = -1
        with contextlib.suppress(BufferError):
            self._map.close()

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _touch(self, advice: int) -> None:
        touched_bytes = int(self._handle["touched_bytes"])
        if not touched_bytes:
            return
        try:
            self._map.madvise(advice, 0, touched_bytes)
        except (OSError, AttributeError, ValueError):  # older kernels, other systems
            for at in range(0, touched_bytes, PAGE_BYTES):
                byte = self._map[at]
                if advice == _MADV_POPULATE_WRITE:
                    self._map[at] = byte


def _refuse_more_than_there_is(size_bytes: int) -> None:
    """Raise UserError if memory is too small: Linux kills processes rather than refuse shared memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        there = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size_bytes > there:
        raise _too_large(size_bytes, f"{there:,} bytes are available")


def _too_large(size_bytes: int, why: str) -> UserError:
    return UserError(
        f"An arena of {size_bytes:,} bytes does not fit into this machine's memory ({why}); "
        "make arenas smaller or start fewer workers."
    )


def _backing() -> tuple[int, str]:
    """Return (descriptor, path under which other processes of this user open it).

    The kernel frees a memfd with the last process that has it open, however that process ends.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("servetwin-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    return tempfile.mkstemp(prefix="servetwin-arena-")  # readable by this user only


def _keep_size(descriptor: int) -> None:
    """Seal the size: if a process shrank the file, others would die by SIGBUS at the first missing byte."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


def _whole_pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _joined(gaps: list[Region]) -> list[Region]:
    """Merge adjacent gaps."""
    joined: list[Region] = []
    for gap in gaps:
        if joined and joined[-1].offset + joined[-1].size_bytes == gap.offset:
            gap = Region(joined[-1].offset, joined[-1].size_bytes + gap.size_bytes)
            joined.pop()
        joined.append(gap)
    return joined
