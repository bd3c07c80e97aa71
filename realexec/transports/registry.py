"""The transports by name, and which of them this machine has."""

import os
import socket
import sys
from collections.abc import Callable
from typing import Final

from realexec.memory.arena import Arena
from realexec.transports import shared_memory, tcp
from realexec.transports.base import Transport
from realexec.wire.listener import LOOPBACK

TRANSPORTS: Final[dict[str, Callable[[Arena], Transport]]] = {
    shared_memory.NAME: shared_memory.SharedMemoryTransport,
    tcp.NAME: tcp.TcpTransport,
}


def missing() -> dict[str, str | None]:
    """For each transport what keeps this machine from it, None where nothing does."""
    return {shared_memory.NAME: _without_shared_memory(), tcp.NAME: _without_tcp()}


def _without_shared_memory() -> str | None:
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return None  # files stand in for memfd
    try:
        with Arena.create(1) as arena, Arena.attach(arena.handle):
            return None
    except OSError as error:
        return f"a memfd cannot be opened through /proc: {error}"


def _without_tcp() -> str | None:
    try:
        socket.create_server((LOOPBACK, 0)).close()
    except OSError as error:
        return f"no port of {LOOPBACK} can be bound: {error}"
    return None
