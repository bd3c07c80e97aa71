"""Reads over TCP: the peer's serving threads send from its arena, this side receives into its own.

A reader proves that it was given the address, which holds a secret of the arena. Bytes are not encrypted.
"""

from collections.abc import Sequence
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import Segment, check_segments
from realexec.transports.peer_listener import ListeningTransport, connect
from realexec.transports.read_requests import ConnectionPool, checked_parts, parts_of, request_read
from realexec.wire.channel import Channel
from realexec.wire.frames import FrameLimits, encoded
from realexec.wire.listener import LOOPBACK

NAME: Final = "tcp"
# Requests list segments in the payload, 16 bytes each.
LIMITS: Final = FrameLimits(head_bytes=4096, payload_bytes=16 << 20)
# Timeout while a peer sends nothing. A busy peer still sends: its threads need a processor only briefly.
SILENCE_S: Final = 10.0
# Per socket; the fastest size for 256 MB on loopback, since larger buffers leave the processor's cache.
BUFFER_BYTES: Final = 1 << 20
_BYTES_FOLLOW: Final = encoded({"type": "bytes"}, 0)


class TcpTransport:
    """Serves an arena on its own port. Binds to this host's loopback unless ``host`` is another address."""

    def __init__(self, arena: Arena, host: str = LOOPBACK, silence_s: float = SILENCE_S) -> None:
        self._arena = arena
        self._silence_s = silence_s
        self._listening = ListeningTransport(self._serve, LIMITS, host)
        self.close = self._listening.close

    def address(self) -> dict[str, Any]:
        """Return host, port and secret: any process that has the secret may read the arena."""
        return {"transport": NAME, **self._listening.listener.address(), "size_bytes": self._arena.size_bytes}

    def connect(self, address: dict[str, Any]) -> "TcpLink":
        """Return a link with its first connection."""
        return self._listening.links.add(TcpLink(self._arena, address, self._silence_s))

    def _serve(self, channel: Channel) -> None:
        """Answer one peer's reads until it disconnects."""
        channel.set_buffers(BUFFER_BYTES)
        channel.send_unpaced_within_host()
        while True:
            self._answer(channel, *channel.receive())

    def _answer(self, channel: Channel, head: dict[str, Any], packed: bytes) -> None:
        buffer = self._arena.buffer
        parts = checked_parts(channel, parts_of(head, packed), len(buffer))
        if parts:
            views = [buffer[offset : offset + size] for offset, size in parts]
            channel.send_views([_BYTES_FOLLOW, *views])


class TcpLink:
    """A link to a peer's arena. Reads of several threads run in parallel, each over its own connection.

    So KV does not wait behind parameters: connections share the network's bandwidth, as flows share the
    simulated fabric. A connection whose read has finished serves the next one.
    """

    def __init__(self, local: Arena, address: dict[str, Any], silence_s: float) -> None:
        self._local = local
        self._address = address
        self._silence_s = silence_s
        self._connections = ConnectionPool(self._connected)
        self.close = self._connections.close

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against the arena size in the peer's address; the peer checks again itself."""
        check_segments(segments, self._local.size_bytes, int(self._address["size_bytes"]))

    def read(self, segments: Sequence[Segment]) -> None:
        """Request all segments at once, and receive each at its local offset."""
        self.check(segments)
        if not segments:
            return
        buffer = self._local.buffer
        with self._connections.lend() as channel:
            request_read(channel, segments)
            channel.receive_into([buffer[local : local + size] for _, local, size in segments])

    def _connected(self) -> Channel:
        """Open another connection. Raises PeerLost."""
        channel = connect(self._address, LIMITS)
        channel.set_buffers(BUFFER_BYTES)
        channel.set_timeout(self._silence_s)
        return channel
