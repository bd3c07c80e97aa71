"""Reads over TCP: the peer's serving threads send out of its arena, this side receives into its own.

A peer proves that it was given the address: a secret of the arena stands in it. The bytes travel as they are.
"""

import struct
import threading
from collections.abc import Sequence
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import BadSegment, PeerLost, Segment, check_segments
from realexec.transports.door import Door, Links, enter
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, Limits, ProtocolError, encoded
from realexec.wire.listener import LOOPBACK

NAME: Final = "tcp"
# Requests list segments in the payload, 16 bytes each.
LIMITS: Final = Limits(head_bytes=4096, payload_bytes=16 << 20)
# A peer that is busy still sends: its serving threads need the processor for moments only.
SILENCE_S: Final = 10.0
# Of each socket. On loopback 256 MB came fastest so: larger buffers leave the processor's cache.
BUFFER_BYTES: Final = 1 << 20
_BYTES_FOLLOW: Final = encoded({"type": "bytes"}, 0)


class TcpTransport:
    """Serves an arena at a port of its own; binds this host's loopback unless told another address."""

    def __init__(self, arena: Arena, host: str = LOOPBACK, silence_s: float = SILENCE_S) -> None:
        self._arena = arena
        self._silence_s = silence_s
        self._links = Links()
        self._door = Door(self._serve, LIMITS, host)

    def address(self) -> dict[str, Any]:
        """Host, port and the secret: whoever has it may read the arena."""
        return {"transport": NAME, **self._door.address(), "size_bytes": self._arena.size_bytes}

    def connect(self, address: dict[str, Any]) -> "TcpLink":
        """A link with its first connection."""
        link = TcpLink(self._arena, address, self._silence_s)
        self._links.add(link)
        return link

    def close(self) -> None:
        """Hangs up on every reader, and ends the links made here."""
        self._door.close()
        self._links.close()

    def _serve(self, channel: Channel) -> None:
        """Answer one peer's reads until it goes."""
        channel.set_buffers(BUFFER_BYTES)
        while True:
            self._answer(channel, *channel.receive())

    def _answer(self, channel: Channel, head: dict[str, Any], packed: bytes) -> None:
        if head.get("type") != "read" or not packed or len(packed) % 16:
            raise ProtocolError("a peer asked for something that is no read")
        numbers = struct.unpack(f"!{len(packed) // 8}Q", packed)
        parts = [Segment(offset, 0, size) for offset, size in zip(numbers[::2], numbers[1::2])]
        buffer = self._arena.buffer
        try:
            check_segments(parts, max(part.size_bytes for part in parts), len(buffer))
        except BadSegment as error:
            channel.send({"type": "refused", "why": str(error)})
            return
        views = [buffer[offset : offset + size] for offset, _, size in parts]
        channel.send_views([_BYTES_FOLLOW, *views])


class TcpLink:
    """A way to a peer's arena. Reads of several threads go side by side, each over a connection of its own.

    So KV does not wait behind parameters: the system lets connections share the way, as the simulated fabric
    lets flows. A connection whose read has ended serves the next one.
    """

    def __init__(self, local: Arena, address: dict[str, Any], silence_s: float) -> None:
        self._local = local
        self._address = address
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[Channel] = set()
        self._idle: list[Channel] = [self._connected()]

    def check(self, segments: Sequence[Segment]) -> None:
        """By what the address says of the peer's arena; the peer looks for itself."""
        check_segments(segments, self._local.size_bytes, int(self._address["size_bytes"]))

    def read(self, segments: Sequence[Segment]) -> None:
        """Asks once for all of them, and receives each where it belongs."""
        self.check(segments)
        if not segments:
            return
        channel = self._taken()
        try:
            refused = self._read(channel, segments)
        except (ChannelClosed, ProtocolError, TimeoutError) as error:
            self.close()  # bytes of this read may still come
            raise PeerLost(str(error)) from None
        with self._lock:
            self._idle.append(channel)
        if refused:
            raise BadSegment(refused)

    def close(self) -> None:
        """Reads under way get PeerLost."""
        with self._lock:
            self._closed = True
            for channel in self._open:
                channel.close()

    def _taken(self) -> Channel:
        """A connection that nobody reads from."""
        with self._lock:
            if self._closed:
                raise PeerLost("the link was closed")
            if self._idle:
                return self._idle.pop()
        return self._connected()

    def _connected(self) -> Channel:
        """One more. Raises PeerLost."""
        channel = enter(self._address, LIMITS)
        channel.set_buffers(BUFFER_BYTES)
        channel.set_timeout(self._silence_s)
        with self._lock:
            self._open.add(channel)
            if self._closed:  # meanwhile; who reads from it hears of that
                channel.close()
        return channel

    def _read(self, channel: Channel, segments: Sequence[Segment]) -> str:
        """Why the peer refused; empty: the bytes are here."""
        numbers = [number for remote, _, size in segments for number in (remote, size)]
        buffer = self._local.buffer
        channel.send({"type": "read"}, struct.pack(f"!{len(numbers)}Q", *numbers))
        head, _ = channel.receive()
        if head["type"] == "refused":
            return str(head["why"])
        channel.receive_into([buffer[local : local + size] for _, local, size in segments])
        return ""
