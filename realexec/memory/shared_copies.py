"""Copies of whole models in the memory of a machine, which all workers of a run there map: one for all.

A memfd of the driver: the kernel frees it with the last process that maps it, however that process ends.
"""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_WHOLE: Final = 1
_FAILED: Final = ctypes.c_void_p(-1).value
_MAP_FIXED: Final = 0x10  # Linux's value on every processor; mmap does not name it


def available() -> bool:
    """Whether this system has memory files."""
    return hasattr(os, "memfd_create")


class SharedCopies:
    """The file. Its last page has a flag: whether a worker has filled it."""

    def __init__(self, descriptor: int, handle: dict[str, Any]) -> None:
        self._descriptor, self._handle = descriptor, handle
        self.size_bytes = 0

    @classmethod
    def create(cls) -> "SharedCopies":
        """Make an empty file. The first worker that attaches gives it its size."""
        descriptor = os.memfd_create("servetwin-copies", os.MFD_CLOEXEC)
        status = os.fstat(descriptor)
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        return cls(descriptor, {"path": path, "device": status.st_dev, "inode": status.st_ino})

    @classmethod
    def attach(cls, handle: dict[str, Any], size_bytes: int) -> "SharedCopies":
        """Open it in another process, with whole pages for ``size_bytes``; OSError if it no longer exists."""
        descriptor = os.open(handle["path"], os.O_RDWR | os.O_CLOEXEC)
        copies = cls(descriptor, {**handle, "size_bytes": size_bytes})
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != (handle["device"], handle["inode"]):
            copies.close()
            raise FileNotFoundError(f"{handle['path']} is no longer the same memory")
        copies.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with copies._locked():
            if status.st_size < copies.size_bytes + mmap.PAGESIZE:
                os.ftruncate(descriptor, copies.size_bytes + mmap.PAGESIZE)
        return copies

    @property
    def handle(self) -> dict[str, Any]:
        """The arguments of `attach`, in JSON types."""
        return dict(self._handle)

    def lay_over(self, memory: mmap.mmap) -> None:
        """Map the file at the beginning of ``memory``, in place of the pages there."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        wanted = (
            ctypes.c_void_p(begin), ctypes.c_size_t(self.size_bytes), mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_SHARED | _MAP_FIXED, self._descriptor, ctypes.c_long(0),
        )  # fmt: skip
        if libc.mmap(*wanted) == _FAILED:
            raise OSError(ctypes.get_errno(), "the copies of models cannot be mapped")

    @contextmanager
    def filling(self) -> Iterator[bool]:
        """Wait until no other worker fills it; yields whether this one has to.

        The kernel releases the lock of a worker that is killed meanwhile, and the next one fills it again.
        """
        with self._locked():
            flag_at = self.size_bytes
            missing = os.pread(self._descriptor, 1, flag_at) != bytes([_WHOLE])
            yield missing
            if missing:
                os.pwrite(self._descriptor, bytes([_WHOLE]), flag_at)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close it here; what is mapped stays."""
        os.close(self._descriptor)
