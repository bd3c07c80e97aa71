"""Memory, shared memory and the disk of this machine."""

import mmap
import os
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from realexec.memory.arena import Arena

PROC: Final = Path("/proc")
SHM: Final = Path("/dev/shm")
DISK_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 4 << 20  # at most as long as a read of a layer's tensor
# Time limit in seconds for writing the file that is read: on a slow disk the file is smaller.
_DISK_S: Final = 2.0


def memory(proc: Path = PROC, shm: Path = SHM) -> dict[str, Any]:
    """Return bytes: ``total``, ``available`` now, ``shared`` (of /dev/shm, for files in place of memfd),
    ``locked`` (most that a process may register with an adapter; None: no limit); and what ``arenas`` are."""
    lines = _lines(proc / "meminfo")
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "total": lines.get("MemTotal", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "available": lines.get("MemAvailable"),
        "shared": _size_of(shm),
        "locked": None if locked == resource.RLIM_INFINITY else locked,
        "arenas": "memfd" if hasattr(os, "memfd_create") else "files",
    }


def disk(folder: Path, size_bytes: int = DISK_BYTES) -> dict[str, Any]:
    """Write a small file there and read it past the page cache: ``read_bytes_per_s``, ``direct`` (False: the
    file system has no O_DIRECT, and nothing is measured), ``free_bytes``."""
    facts: dict[str, Any] = {
        "folder": str(folder), "direct": False, "read_bytes_per_s": None, "free_bytes": None,
    }  # fmt: skip
    try:
        status = os.statvfs(folder)
        facts["free_bytes"] = status.f_bavail * status.f_frsize
        with tempfile.NamedTemporaryFile(dir=folder, prefix="servetwin-probe-") as file:
            written = _fill(file.fileno(), min(size_bytes, facts["free_bytes"] // 2))
            rate = _read_past_the_cache(file.name, written)
    except OSError:
        return facts
    return {**facts, "direct": rate is not None, "read_bytes_per_s": rate}


def _fill(descriptor: int, size_bytes: int) -> int:
    """Write random bytes, which no file system can compress; return how many there was time for."""
    block, written, began_s = os.urandom(_BLOCK_BYTES), 0, time.monotonic()
    while written < size_bytes and time.monotonic() - began_s < _DISK_S:
        written += os.write(descriptor, block)
    os.fsync(descriptor)
    return written // mmap.PAGESIZE * mmap.PAGESIZE


def _read_past_the_cache(name: str, size_bytes: int) -> float | None:
    if not size_bytes or not hasattr(os, "O_DIRECT"):
        return None
    with Arena.create(_BLOCK_BYTES) as buffer:  # page-aligned, as direct reads require
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECT)
        try:
            done, began_s = 0, time.perf_counter()
            while done < size_bytes:
                got = os.preadv(descriptor, [buffer.buffer], done)
                if got <= 0:
                    return None
                done += got
            return done / (time.perf_counter() - began_s)
        finally:
            os.close(descriptor)


def _size_of(folder: Path) -> int | None:
    with suppress(OSError):
        status = os.statvfs(folder)
        return status.f_blocks * status.f_frsize
    return None


def _lines(path: Path) -> dict[str, int]:
    """Parse lines such as ``MemTotal: 16 kB`` into name -> bytes."""
    sizes = {}
    with suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdecimal():
                sizes[name] = int(words[0]) * 1024
    return sizes
