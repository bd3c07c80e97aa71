"""Reads on one host: the reader copies out of the peer's memory, and the peer's process does nothing."""

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
# How much is copied before the reader looks again whether the peer lives and the link is open: tens of
# milliseconds. The C library copies what is far larger than the processor's cache nearly twice as fast.
CHUNK_BYTES: Final = 256 << 20


class SharedMemoryTransport:
    """Of an arena that peers of the same user on this host may read."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._links: weakref.WeakSet[SharedMemoryLink] = weakref.WeakSet()

    def address(self) -> dict[str, Any]:
        """The arena's handle."""
        return {"transport": NAME, "arena": self._arena.handle}

    def connect(self, address: dict[str, Any]) -> "SharedMemoryLink":
        """Maps the peer's arena."""
        try:
            link = SharedMemoryLink(self._arena, address["arena"])
        except OSError as error:
            raise PeerLost(f"the peer's arena cannot be opened: {error}") from None
        self._links.add(link)
        return link

    def close(self) -> None:
        """Readers elsewhere get PeerLost; so do those here."""
        self._arena.retire()
        for link in list(self._links):
            link.close()


class SharedMemoryLink:
    """The mapped arena of a peer, and a descriptor by which the kernel tells when the peer has ended."""

    def __init__(self, local: Arena, handle: dict[str, Any]) -> None:
        self._local = local
        self._remote = Arena.attach(handle, touched=True)
        self._alive = _Alive(handle["pid"])
        self._lock = threading.Lock()
        self._readers = 0
        self._closed = False

    def check(self, segments: Sequence[Segment]) -> None:
        """Both sizes are known here."""
        check_segments(segments, self._local.size_bytes, self._remote.size_bytes)

    def read(self, segments: Sequence[Segment]) -> None:
        """Copies chunk by chunk; other threads run meanwhile."""
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
        """Reads under way end after the chunk that they are at."""
        with self._lock:
            self._closed = True
            self._release()

    def _release(self) -> None:
        """The last one out unmaps."""
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
    """Copies between such arrays let go of the interpreter's lock; slice assignments of views keep it."""
    return np.frombuffer(arena.buffer, dtype=np.uint8)


class _Alive:
    """Whether a process still runs; exact where Linux has pidfd_open(2): its number may be used anew."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        if hasattr(os, "pidfd_open"):
            self._descriptor = os.pidfd_open(pid)

    def __call__(self) -> bool:
        if self._descriptor >= 0:
            watch = select.poll()  # of this thread: two may not wait on the same one
            watch.register(self._descriptor, select.POLLIN)
            return not watch.poll(0)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
