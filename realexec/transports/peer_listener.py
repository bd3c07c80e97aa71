"""The listening end of a transport, a `PeerListener`: it admits peers that have its address and secret."""

import secrets
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from realexec.transports.base import PeerLost
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.handshake import SECRET_BYTES
from realexec.wire.listener import LOOPBACK, Listener, dial

_READER: Final = {"reader": True}


class PeerListener:
    """Listens on a port of its own. ``serve`` runs in one thread per peer until that peer's channel ends."""

    def __init__(self, serve: Callable[[Channel], None], limits: FrameLimits, host: str = LOOPBACK) -> None:
        self._serve = serve
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._lock = threading.Lock()
        self._admitted_channels: set[Channel] = set()
        self._closed = False
        self._listener = Listener(self._secret, self._admitted, tcp_host=host, limits=limits)

    def address(self) -> dict[str, Any]:
        """Return host, port and secret: any process that has the secret is admitted."""
        return {"at": self._listener.address, "secret": self._secret.hex()}

    def close(self) -> None:
        """Stop listening and close every peer's channel."""
        self._listener.close()
        with self._lock:
            self._closed = True
            for channel in self._admitted_channels:
                channel.close()

    def _admitted(self, channel: Channel, _: dict[str, Any]) -> None:
        with self._lock:
            if self._closed:
                channel.close()
                return
            self._admitted_channels.add(channel)
        try:
            self._serve(channel)
        except (ChannelClosed, ProtocolError):
            pass  # the peer has disconnected, or does not speak this protocol
        finally:
            channel.close()
            with self._lock:
                self._admitted_channels.discard(channel)


def connect(address: dict[str, Any], limits: FrameLimits) -> Channel:
    """Connect to the listener with this address and return the channel; PeerLost if nothing answers there."""
    try:
        return dial(address["at"], bytes.fromhex(address["secret"]), _READER, limits)
    except (ChannelClosed, ProtocolError, TimeoutError) as error:
        raise PeerLost(str(error)) from None


class Closable(Protocol):
    """An object that can be closed."""

    def close(self) -> None: ...


AnyLink = TypeVar("AnyLink", bound=Closable)


class Links:
    """Links that a transport has made and that are still referenced; they are closed with the transport."""

    def __init__(self) -> None:
        self._links: weakref.WeakSet[Closable] = weakref.WeakSet()

    def add(self, link: AnyLink) -> AnyLink:
        """Register a link and return it."""
        self._links.add(link)
        return link

    def close(self) -> None:
        """Close all registered links."""
        for link in list(self._links):
            link.close()


class ListeningTransport:
    """Common part of transports that listen: the listener that serves readers, and the links made here."""

    def __init__(self, serve: Callable[[Channel], None], limits: FrameLimits, host: str = LOOPBACK) -> None:
        self.links = Links()
        self.listener = PeerListener(serve, limits, host)

    def close(self) -> None:
        """Disconnect every reader, and close the links made here."""
        self.listener.close()
        self.links.close()
