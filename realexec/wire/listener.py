"""Accept connections of a run's processes: on a Unix socket for this user only, or on TCP if requested."""

import contextlib
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.handshake import HANDSHAKE_S, admit, join

LOOPBACK: Final = "127.0.0.1"
# Peers that have not proved the secret yet. One more takes the place of the one that has waited longest:
# those that know the secret prove it within milliseconds, and connect again if they were too late.
MOST_STRANGERS: Final = 32
_BACKLOG: Final = 128
_TOO_MANY: Final = "too many connections that have not proved the secret"
# A peer that was disconnected in the handshake connects again after so long, and then after twice as long.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
# Below the limits of a Unix socket's path: 108 bytes on Linux (sun_path in unix(7)), 104 elsewhere.
_MOST_PATH_BYTES: Final = 100

Admitted = Callable[[Channel, dict[str, Any]], None]


class Listener:
    """Accepts peers until closed; each proves the secret in a thread of its own, within a time limit."""

    def __init__(
        self,
        secret: bytes,
        admitted: Admitted,
        *,
        tcp_host: str | None = None,
        limits: FrameLimits | None = None,
        timeout_s: float = HANDSHAKE_S,
        path: str | None = None,
    ) -> None:
        """``admitted`` gets the channel and the peer's identity, in that thread. ``tcp_host`` selects TCP.

        ``path``: of a Unix socket, in a folder that only this user can enter; `close` does not remove it.
        """
        self._secret = secret
        self._admitted = admitted
        self._limits = limits
        self._timeout_s = timeout_s
        self._strangers: dict[Channel, None] = {}  # the one that has waited longest first
        self._pushed_out: set[Channel] = set()
        self._changing = threading.Lock()  # of these two and the refusals
        self._folder: Path | None = None
        self.refused: list[str] = []  # reasons of the latest refusals
        if tcp_host is None:
            if path is None:
                self._folder = private_folder()
                path = str(self._folder / "s")
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(path)
        else:
            self._socket = socket.create_server((tcp_host, 0), backlog=_BACKLOG)
        self._socket.listen(_BACKLOG)
        self.address: dict[str, Any] = address_of(self._socket)
        self._thread = threading.Thread(target=self._accept, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting; channels that were admitted stay open."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._socket.close()
        self._thread.join()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            channel = Channel(connection, self._limits)
            self._make_room(channel)
            threading.Thread(
                target=self._greet, args=(connection, channel), name="greeter", daemon=True
            ).start()

    def _make_room(self, channel: Channel) -> None:
        """Take the peer in, in the place of the one that has waited longest if there are too many."""
        with self._changing:
            longest = next(iter(self._strangers)) if len(self._strangers) >= MOST_STRANGERS else None
            if longest is not None:
                del self._strangers[longest]
                self._pushed_out.add(longest)
            self._strangers[channel] = None
        if longest is not None:
            longest.hang_up()  # its greeter closes and reports it

    def _greet(self, connection: socket.socket, channel: Channel) -> None:
        def proved() -> None:
            with self._changing:
                if channel not in self._strangers:
                    raise ChannelClosed(_TOO_MANY)
                del self._strangers[channel]

        try:
            _refuse_other_users(connection)
            no_delay(connection)
            identity = admit(channel, self._secret, self._timeout_s, proved)
        except (ProtocolError, ChannelClosed, TimeoutError, OSError) as error:
            channel.close()
            with self._changing:
                self._strangers.pop(channel, None)
                why = _TOO_MANY if channel in self._pushed_out else str(error)
                self._pushed_out.discard(channel)
            self._refuse(why)
            return
        self._admitted(channel, identity)

    def _refuse(self, why: str) -> None:
        with self._changing:
            self.refused = [*self.refused[-99:], why]


def dial(
    address: dict[str, Any],
    secret: bytes,
    identity: dict[str, Any],
    limits: FrameLimits | None = None,
    timeout_s: float = HANDSHAKE_S,
) -> Channel:
    """Connect to a listener's address, again where it hangs up before this side could prove the secret.

    Raises ChannelClosed, ProtocolError, or TimeoutError.
    """
    until_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        channel = _connected(address, limits, max(until_s - time.monotonic(), _FIRST_PAUSE_S))
        try:
            join(channel, secret, identity, max(until_s - time.monotonic(), _FIRST_PAUSE_S))
            return channel
        except ChannelClosed:
            if time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _connected(address: dict[str, Any], limits: FrameLimits | None, timeout_s: float) -> Channel:
    connection = socket.socket(socket.AF_UNIX if "path" in address else socket.AF_INET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address["path"] if "path" in address else (address["host"], address["port"]))
        no_delay(connection)
    except OSError as error:
        connection.close()
        raise ChannelClosed(f"no process answers at {address}: {error}") from None
    return Channel(connection, limits)


def address_of(listening: socket.socket) -> dict[str, Any]:
    """Return the address that `dial` takes; it can be written as JSON."""
    if listening.family == socket.AF_UNIX:
        return {"path": listening.getsockname()}
    host, port = listening.getsockname()[:2]
    return {"host": host, "port": port}


def no_delay(connection: socket.socket) -> None:
    """Send short frames at once, without Nagle's delay."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def private_folder() -> Path:
    """Make a folder that only this user can enter, with a path short enough for a socket."""
    folder = tempfile.mkdtemp(prefix="servetwin-")  # mode 0700
    if len(os.fsencode(folder)) > _MOST_PATH_BYTES - 2:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="servetwin-", dir="/tmp")
    return Path(folder)


def _refuse_other_users(connection: socket.socket) -> None:
    """Refuse a peer of another user, as reported by the kernel for Unix sockets."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    if user != os.getuid():
        raise ProtocolError(f"user {user} connected, and this run belongs to user {os.getuid()}")
