"""Two-sided reads: the read request that a reader sends to its peer, and the connections to a peer."""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from realexec.transports.base import BadSegment, PeerLost, Segment, check_segments
from realexec.transports.peer_listener import Closable
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError

AnyConnection = TypeVar("AnyConnection", bound=Closable)
# (offset at the peer, size in bytes).
Part = tuple[int, int]


def request_read(channel: Channel, segments: Sequence[Segment]) -> None:
    """Request a read. Return when the peer is about to send the bytes; BadSegment if it refuses."""
    numbers = [number for remote, _, size in segments for number in (remote, size)]
    channel.send({"type": "read"}, struct.pack(f"!{len(numbers)}Q", *numbers))
    head, _ = channel.receive()
    if head["type"] == "refused":
        raise BadSegment(str(head["why"]))


def parts_of(head: dict[str, Any], packed: bytes) -> list[Part]:
    """Decode a read request into the parts that the reader wants."""
    if head.get("type") != "read" or not packed or len(packed) % 16:
        raise ProtocolError("a peer sent a request that is not a read")
    numbers = struct.unpack(f"!{len(packed) // 8}Q", packed)
    return list(zip(numbers[::2], numbers[1::2]))


def checked_parts(channel: Channel, parts: list[Part], size_bytes: int) -> list[Part]:
    """Return ``parts``. If one lies outside an arena of ``size_bytes``, send a refusal and return none."""
    segments = [Segment(offset, 0, size) for offset, size in parts]
    try:
        check_segments(segments, max(size for _, size in parts), size_bytes)
    except BadSegment as error:
        channel.send({"type": "refused", "why": str(error)})
        return []
    return parts


class ConnectionPool(Generic[AnyConnection]):
    """Connections to one peer: each serves one read at a time; another is opened if all are busy."""

    def __init__(self, connect: Callable[[], AnyConnection]) -> None:
        """``connect``: opens a connection, or raises PeerLost. The first one is opened at once."""
        self._connect = connect
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[AnyConnection] = set()
        self._idle: list[AnyConnection] = [self._open_another()]

    @contextmanager
    def lend(self) -> Iterator[AnyConnection]:
        """Lend a connection for one read. Raises PeerLost if the connection ends."""
        connection = self._take()
        try:
            yield connection
        except BadSegment:
            self._free(connection)
            raise
        except PeerLost:
            self.close()
            raise
        except (ChannelClosed, ProtocolError, TimeoutError) as error:
            self.close()  # bytes of this read may still arrive
            raise PeerLost(str(error)) from None
        self._free(connection)

    def close(self) -> None:
        """Close all connections. Reads in progress raise PeerLost."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
        # Without the lock: `close` may wait for a read, and a read takes the lock in `_free`.
        for connection in connections:
            connection.close()

    def _free(self, connection: AnyConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _take(self) -> AnyConnection:
        with self._lock:
            if self._closed:
                raise PeerLost("the link was closed")
            if self._idle:
                return self._idle.pop()
        return self._open_another()

    def _open_another(self) -> AnyConnection:
        connection = self._connect()
        with self._lock:
            self._open.add(connection)
            closed = self._closed
        if closed:  # in the meantime; a read over this connection then fails
            connection.close()
        return connection
