"""Where peers connect to a transport: whoever was given its address is let in, and leaves when it closes."""

import secrets
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from realexec.transports.base import PeerLost
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, Limits, ProtocolError
from realexec.wire.handshake import SECRET_BYTES
from realexec.wire.listener import LOOPBACK, Listener, dial

_READER: Final = {"reader": True}


class Door:
    """Listens at a port of its own; ``serve`` has each peer's channel in a thread until it ends."""

    def __init__(self, serve: Callable[[Channel], None], limits: Limits, host: str = LOOPBACK) -> None:
        self._serve = serve
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._lock = threading.Lock()
        self._inside: set[Channel] = set()
        self._closed = False
        self._listener = Listener(self._secret, self._admitted, host, limits)

    def address(self) -> dict[str, Any]:
        """Host, port and the secret: whoever has it is let in."""
        return {"at": self._listener.address, "secret": self._secret.hex()}

    def close(self) -> None:
        """Hangs up on everybody."""
        self._listener.close()
        with self._lock:
            self._closed = True
            for channel in self._inside:
                channel.close()

    def _admitted(self, channel: Channel, _: dict[str, Any]) -> None:
        with self._lock:
            if self._closed:
                channel.close()
                return
            self._inside.add(channel)
        try:
            self._serve(channel)
        except (ChannelClosed, ProtocolError):
            pass  # the peer has gone, or is none
        finally:
            channel.close()
            with self._lock:
                self._inside.discard(channel)


def enter(address: dict[str, Any], limits: Limits) -> Channel:
    """A channel to the door with this address; PeerLost when nobody answers there."""
    try:
        return dial(address["at"], bytes.fromhex(address["secret"]), _READER, limits)
    except (ChannelClosed, ProtocolError, TimeoutError) as error:
        raise PeerLost(str(error)) from None


class Closable(Protocol):
    """What has an end."""

    def close(self) -> None: ...


AnyLink = TypeVar("AnyLink", bound=Closable)


class Links:
    """Those that a transport has made and somebody still holds; they end with it."""

    def __init__(self) -> None:
        self._links: weakref.WeakSet[Closable] = weakref.WeakSet()

    def add(self, link: AnyLink) -> AnyLink:
        """One more, which is returned."""
        self._links.add(link)
        return link

    def close(self) -> None:
        """All of them."""
        for link in list(self._links):
            link.close()


class Doorway:
    """What transports with a door have: the door that serves readers, and the links that were made here."""

    def __init__(self, serve: Callable[[Channel], None], limits: Limits, host: str = LOOPBACK) -> None:
        self.links = Links()
        self.door = Door(serve, limits, host)

    def close(self) -> None:
        """Hangs up on every reader, and ends the links made here."""
        self.door.close()
        self.links.close()
