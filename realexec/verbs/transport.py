"""One-sided reads by RDMA READ over reliable connections, each with a channel that shows the peer's exit.

The peer's processor does nothing for a read. After a network error both ends renew their queues, and the read
is tried once more. A refusal (a key or place that the peer has not registered) is an error of the reader.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import BadSegment, PeerLost, Segment, check_segments
from realexec.transports.peer_listener import Links, PeerListener, connect
from realexec.transports.read_requests import ConnectionPool
from realexec.verbs import helper
from realexec.verbs.pair import Broken, Ended, PairRefused
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.listener import LOOPBACK

NAME: Final = "verbs"
LIMITS: Final = FrameLimits(head_bytes=4096, payload_bytes=0)
# Joining two queue pairs takes milliseconds; a peer that has not answered by this timeout counts as lost.
JOIN_S: Final = 5.0
AGAIN_S: Final = 1.0


class VerbsTransport:
    """Registers an arena with an RDMA device. The listener binds to ``host``, by default loopback."""

    def __init__(self, arena: Arena, host: str = LOOPBACK) -> None:
        self._size_bytes = arena.size_bytes
        self._device = helper.device_of(arena)
        self._links = Links()
        self._listener = PeerListener(self._serve, LIMITS, host)

    def address(self) -> dict[str, Any]:
        """Return the listener's address, and the memory's place and key, with which peers read the arena."""
        return {
            "transport": NAME, **self._listener.address(), **self._device.told(),
            "size_bytes": self._size_bytes,
        }  # fmt: skip

    def connect(self, address: dict[str, Any]) -> "VerbsLink":
        """Return a link with its first queue pair."""
        link = VerbsLink(self._device, self._size_bytes, address)
        self._links.add(link)
        return link

    def close(self) -> None:
        """Close the channels of all readers, the links made here and the device."""
        self._listener.close()
        self._links.close()
        self._device.close()

    def _serve(self, channel: Channel) -> None:
        """Join a queue pair with the peer's, each time the peer requests it."""
        pair = self._device.pair()
        try:
            while True:
                head, _ = channel.receive()
                answer = pair.renew()
                try:
                    pair.join(head["pair"])
                except (KeyError, TypeError, ValueError, Broken) as error:
                    raise ProtocolError(f"a peer's queue pair cannot be joined: {error}") from None
                channel.send({"type": "joined", "pair": answer})
        finally:
            self._device.give(pair)


class VerbsLink:
    """A link to a peer's arena. Reads of several threads run in parallel, each over its own queue pair.

    So KV does not wait behind parameters. A queue pair whose read has finished serves the next one.
    """

    def __init__(self, device: Any, local_bytes: int, address: dict[str, Any]) -> None:
        self._device, self._local_bytes, self._address = device, local_bytes, address
        self._connections = ConnectionPool(self._joined)
        self.close = self._connections.close

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against the arena size in the peer's address; the peer's device checks again itself."""
        check_segments(segments, self._local_bytes, int(self._address["size_bytes"]))

    def read(self, segments: Sequence[Segment]) -> None:
        """Read the segments. The calling thread sleeps until the device has delivered them."""
        self.check(segments)
        if not segments:
            return
        with self._connections.lend() as connection:
            connection.read(segments)

    def _joined(self) -> "_Connection":
        """Open another connection. Raises PeerLost."""
        channel = connect(self._address, LIMITS)
        try:
            return _Connection(self._device, channel, self._address)
        except Broken as error:
            channel.close()
            raise PeerLost(str(error)) from None


class _Connection:
    """A queue pair joined with one of the peer's, and its channel to the peer. One thread reads at a time."""

    def __init__(self, device: Any, channel: Channel, address: dict[str, Any]) -> None:
        self._device, self._channel = device, channel
        self._begins, self._key = int(address["begins"]), int(address["key"])
        self._reading = threading.Lock()
        self._pair = device.pair()
        self._given = False
        self._mend(JOIN_S)

    def read(self, segments: Sequence[Segment]) -> None:
        """Read the segments. Raises PeerLost, and BadSegment if the peer's device refuses the read."""
        with self._reading:
            self._check_open()
            try:
                self._read(segments)
            except Broken:  # packets were lost for longer than the device retries: renew, and read once more
                self._mend(AGAIN_S)
                try:
                    self._read(segments)
                except Broken as error:
                    self._lose(f"the peer's device does not answer: {error}")

    def _read(self, segments: Sequence[Segment]) -> None:
        try:
            self._pair.read(segments, self._begins, self._key, self._channel.fileno())
        except PairRefused as error:
            self._mend(AGAIN_S)
            raise BadSegment(f"the peer's device refuses a read of its memory: {error}") from None
        except Ended:
            self._lose_as_told()
        self._check_open()

    def _mend(self, within_s: float) -> None:
        """Renew the queues at both ends and send an empty message, which fails at once on a broken path."""
        try:
            self._channel.send({"type": "join", "pair": self._pair.renew()})
            head, _ = self._channel.receive(time.monotonic() + within_s)
            self._pair.join(head["pair"])
            self._pair.greet(self._channel.fileno())
        except (ChannelClosed, ProtocolError, TimeoutError, KeyError) as error:
            self._lose(str(error))
        except Broken as error:
            self._lose(f"the peer's device cannot be reached: {error}")
        except Ended:
            self._lose_as_told()

    def close(self) -> None:
        """Close the connection. A read under way raises PeerLost."""
        self._channel.close()
        if self._reading.acquire(timeout=JOIN_S):  # a read under way ends because the channel is closed
            self._give()
            self._reading.release()

    def _check_open(self) -> None:
        if self._channel.ready():
            self._lose_as_told()

    def _lose_as_told(self) -> None:
        """Raise PeerLost: the channel has ended, or the peer has sent an unexpected message."""
        try:
            self._channel.receive()
            why = "the peer sent an unexpected message during a read"
        except (ChannelClosed, ProtocolError) as error:
            why = str(error)
        self._lose(why)

    def _lose(self, why: str) -> None:
        self._channel.close()
        self._give()
        raise PeerLost(why)

    def _give(self) -> None:
        if not self._given:
            self._given = True
            self._device.give(self._pair)
