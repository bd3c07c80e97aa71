"""Reads over TCP: the peer's serving threads send out of its arena, this side receives into its own.

A peer proves that it was given the address: a secret of the arena stands in it. The bytes travel as they are.
"""

from collections.abc import Sequence
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.asked import Ways, ask, asked, granted
from realexec.transports.base import Segment, check_segments
from realexec.transports.door import Doorway, enter
from realexec.wire.channel import Channel
from realexec.wire.frames import Limits, encoded
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
        self._doorway = Doorway(self._serve, LIMITS, host)
        self.close = self._doorway.close

    def address(self) -> dict[str, Any]:
        """Host, port and the secret: whoever has it may read the arena."""
        return {"transport": NAME, **self._doorway.door.address(), "size_bytes": self._arena.size_bytes}

    def connect(self, address: dict[str, Any]) -> "TcpLink":
        """A link with its first connection."""
        return self._doorway.links.add(TcpLink(self._arena, address, self._silence_s))

    def _serve(self, channel: Channel) -> None:
        """Answer one peer's reads until it goes."""
        channel.set_buffers(BUFFER_BYTES)
        while True:
            self._answer(channel, *channel.receive())

    def _answer(self, channel: Channel, head: dict[str, Any], packed: bytes) -> None:
        buffer = self._arena.buffer
        parts = granted(channel, asked(head, packed), len(buffer))
        if parts:
            views = [buffer[offset : offset + size] for offset, size in parts]
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
        self._ways = Ways(self._connected)
        self.close = self._ways.close

    def check(self, segments: Sequence[Segment]) -> None:
        """By what the address says of the peer's arena; the peer looks for itself."""
        check_segments(segments, self._local.size_bytes, int(self._address["size_bytes"]))

    def read(self, segments: Sequence[Segment]) -> None:
        """Asks once for all of them, and receives each where it belongs."""
        self.check(segments)
        if not segments:
            return
        buffer = self._local.buffer
        with self._ways.one() as channel:
            ask(channel, segments)
            channel.receive_into([buffer[local : local + size] for _, local, size in segments])

    def _connected(self) -> Channel:
        """One more. Raises PeerLost."""
        channel = enter(self._address, LIMITS)
        channel.set_buffers(BUFFER_BYTES)
        channel.set_timeout(self._silence_s)
        return channel
