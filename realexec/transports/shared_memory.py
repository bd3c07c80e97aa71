"""Reads on one host: the reader copies from the peer's memory without any work by the peer's process."""

import os
import select
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from realexec.memory.arena import Arena
from realexec.transports.base import PeerLost, Segment, check_segments, cut

NAME: Final = "shared_memory"
# Bytes copied between two checks whether the peer is alive and the link is open: tens of milliseconds.
# The C library copies blocks that are far larger than the processor's cache nearly twice as fast.
CHUNK_BYTES: Final = 256 << 20


class SharedMemoryTransport:
    """Serves an arena to peers of the same user on this host."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._links: weakref.WeakSet[SharedMemoryLink] = weakref.WeakSet()

    def address(self) -> dict[str, Any]:
        """Return the arena's handle."""
        return {"transport": NAME, "arena": self._arena.handle}

    def connect(self, address: dict[str, Any]) -> "SharedMemoryLink":
        """Map the peer's arena."""
        try:
            link = SharedMemoryLink(self._arena, address["arena"])
        except OSError as error:
            raise PeerLost(f"the peer's arena cannot be opened: {error}") from None
        self._links.add(link)
        return link

    def close(self) -> None:
        """Make readers in other processes and in this one fail with PeerLost."""
        self._arena.retire()
        for link in list(self._links):
            link.close()


class SharedMemoryLink:
    """The mapped arena of a peer, and a descriptor by which the kernel reports the peer's exit."""

    def __init__(self, local: Arena, handle: dict[str, Any]) -> None:
        self._local = local
        self._remote = Arena.attach(handle, touched=True)
        self._alive = _Alive(handle["pid"])
        self._lock = threading.Lock()
        self._readers = 0
        self._closed = False

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against both arenas' sizes, which are known here."""
        check_segments(segments, self._local.size_bytes, self._remote.size_bytes)

    def read(self, segments: Sequence[Segment]) -> None:
        """Copy chunk by chunk; other threads can run meanwhile."""
        self.check(segments)
        with self._lock:
            self._check()
            self._readers += 1
        try:
            theirs, ours = _bytes_of(self._remote), _bytes_of(self._local)
            for remote, local, size in cut(segments, CHUNK_BYTES):
                self._check()
                np.copyto(ours[local : local + size], theirs[remote : remote + size])
            self._check()
        finally:
            with self._lock:
                self._readers -= 1
                self._release()

    def close(self) -> None:
        """Close the link. Reads under way end after their current chunk."""
        with self._lock:
            self._closed = True
            self._release()

    def _release(self) -> None:
        """Unmap the peer's arena if the link is closed and no read uses it any more."""
        if self._closed and not self._readers:
            self._remote.close()
            self._alive.close()

    def _check(self) -> None:
        if self._closed:
            raise PeerLost("the link was closed")
        if not self._remote.served:
            raise PeerLost("the peer has closed its arena")
        if not self._alive():
            raise PeerLost("the peer's process has ended")


def _bytes_of(arena: Arena) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """View an arena as a NumPy array: copies between arrays release the GIL, slice assignments keep it."""
    return np.frombuffer(arena.buffer, dtype=np.uint8)


class _Alive:
    """Whether a process still runs. Exact only with Linux's pidfd_open(2), since PIDs are reused."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        if hasattr(os, "pidfd_open"):
            self._descriptor = os.pidfd_open(pid)

    def __call__(self) -> bool:
        if self._descriptor >= 0:
            watch = select.poll()  # one per call: two threads may not poll the same object
            watch.register(self._descriptor, select.POLLIN)
            return not watch.poll(0)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
