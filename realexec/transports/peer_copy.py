"""Reads on one host between devices' memories: one copy from the peer's compute memory into this worker's.

If the device computes in the arena (a CPU), the copy is between arenas. A device with its own memory
(``device=apart``, a GPU by CUDA IPC) shares a block of it; the arenas hold none of those bytes. Host-only
data of the peer, copies of whole models, is read from its arena. A channel to the peer's listener passes the
block and closes with the peer's process. Two workers on one GPU have run it; none on two
(docs/how-to/GPU.md).
"""

import importlib.util
import threading
from collections.abc import Sequence
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import PeerLost, Segment, batches, check_segments
from realexec.transports.peer_listener import ListeningTransport, connect
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.listener import LOOPBACK

NAME: Final = "peer_copy"
LIMITS: Final = FrameLimits(head_bytes=4096, payload_bytes=0)
# Bytes copied between two checks whether the peer is alive and the link is open.
CHUNK_BYTES: Final = 256 << 20


def missing() -> str | None:
    """Return why this machine cannot use this transport; None if it can."""
    return None if importlib.util.find_spec("torch") else "torch is not installed: write `pip install torch`"


class PeerCopyTransport:
    """Copies between devices. ``memory``: where this worker computes, a block for peers; None: the arena."""

    def __init__(self, arena: Arena, host: str = LOOPBACK, memory: Any = None) -> None:
        from realexec.memory.tensor_memory import ArenaMemory

        self._arena = arena
        self._memory = ArenaMemory(arena) if memory is None else memory
        self._listening = ListeningTransport(self._serve, LIMITS, host)
        self.close = self._listening.close

    def address(self) -> dict[str, Any]:
        """Return the listener's address and the arena's handle. Each peer receives the block there."""
        return {"transport": NAME, **self._listening.listener.address(), "arena": self._arena.handle}

    def connect(self, address: dict[str, Any]) -> "PeerCopyLink":
        """Open the peer's block and arena."""
        channel = connect(address, LIMITS)
        try:
            head, _ = channel.receive()
            link = PeerCopyLink(self._memory, channel, address["arena"], head)
        except (ChannelClosed, ProtocolError, TimeoutError, OSError) as error:
            channel.close()
            raise PeerLost(f"the peer's memory cannot be opened: {error}") from None
        return self._listening.links.add(link)

    def _serve(self, channel: Channel) -> None:
        channel.send({"type": "block", **self._memory.shared()})
        channel.receive()  # the peer sends nothing; this returns or raises when it disconnects


class PeerCopyLink:
    """A peer's block and arena, mapped here. Several threads read in parallel, each in its copy stream."""

    def __init__(self, memory: Any, channel: Channel, arena: dict[str, Any], handle: dict[str, Any]) -> None:
        self._memory, self._channel = memory, channel
        self._size_bytes = int(arena["size_bytes"])
        self._first = int(handle["first"])
        with Arena.attach(arena, touched=True) as remote:  # its bytes stay mapped while they are used
            self._whole = memory.bytes_of(remote)
            self._block = memory.reached(handle, self._whole)
        self._lock = threading.Lock()
        self._closed = False

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against both arenas' sizes, which are known here."""
        check_segments(segments, self._memory.size_bytes, self._size_bytes)

    def read(self, segments: Sequence[Segment]) -> None:
        """Copy chunk by chunk. On return the bytes are in the memory this worker computes in."""
        self.check(segments)
        for batch in batches(segments, CHUNK_BYTES):
            block, whole = self._held()
            with self._memory.copy_stream():
                for remote, local, size in batch:
                    there = whole[remote:] if remote < self._first else block[remote - self._first :]
                    self._memory.place(local, size).copy_(there[:size], non_blocking=True)
        self._held()

    def close(self) -> None:
        """Close the link. Reads under way end after their current chunk; then the memory is released."""
        with self._lock:
            self._closed = True
            self._block = self._whole = None
        self._channel.close()

    def _held(self) -> tuple[Any, Any]:
        """Return the peer's block and arena; PeerLost if the link is closed or the peer has ended."""
        with self._lock:
            if self._closed:
                raise PeerLost("the link was closed")
            held = self._block, self._whole
        if self._channel.ready():  # the peer sends nothing more, so this means its end
            self.close()
            raise PeerLost("the peer has closed its memory, or its process has ended")
        return held
