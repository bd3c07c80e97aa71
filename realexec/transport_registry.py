"""The transports by name, and which of them this machine can use."""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.system.devices import SYS
from realexec.transports import groups, nixl, peer_copy, shared_memory, tcp
from realexec.transports.base import Transport
from realexec.verbs import package
from realexec.verbs import transport as verbs
from realexec.wire.listener import LOOPBACK
from serving.vocabulary.errors import UserError

TRANSPORTS: Final[dict[str, Callable[..., Transport]]] = {
    shared_memory.NAME: shared_memory.SharedMemoryTransport,
    tcp.NAME: tcp.TcpTransport,
    nixl.NAME: nixl.NixlTransport,
    verbs.NAME: verbs.VerbsTransport,
    peer_copy.NAME: peer_copy.PeerCopyTransport,
    groups.NCCL: partial(groups.GroupTransport, groups.NCCL),
    groups.GLOO: partial(groups.GroupTransport, groups.GLOO),
}
# Transports that need a package or a device that not every machine has.
OPTIONAL: Final = frozenset({nixl.NAME, verbs.NAME, peer_copy.NAME, groups.NCCL, groups.GLOO})
# Transports that read only memory of their own host.
ONE_HOST: Final = frozenset({shared_memory.NAME, peer_copy.NAME})
# Transports that copy between the memories that peer and worker compute in: a device's own, not the arena.
DIRECT: Final = frozenset({peer_copy.NAME, groups.NCCL, groups.GLOO})
# Transports that connect to all peers when a run starts, so that the first load does not include that time.
AHEAD: Final = frozenset({verbs.NAME})


def missing(sys_root: Path = SYS) -> dict[str, str | None]:
    """For each transport, return why this machine cannot use it; None if it can."""
    return {name: lack_of(name, sys_root) for name in TRANSPORTS}


def lack_of(name: str, sys_root: Path = SYS) -> str | None:
    """Return why this machine cannot use a transport. Imports its packages, which may take seconds."""
    if name == verbs.NAME:
        return package.missing(sys_root)
    return _LACKS[name]()


def lack_between(name: str, device: str) -> str | None:
    """Return why two workers of this machine, which compute on ``device``, cannot use a transport."""
    return groups.missing_between(name, device) if name == groups.NCCL else lack_of(name)


def best_first(names: Iterable[str], on_gpu: bool) -> tuple[str, ...]:
    """Sort by preference for runs that name no transport. On a GPU, copies from GPU to GPU come before ways
    through host memory: 1,024 GB/s and 6 within an H200 (docs/how-to/GPU.md)."""
    return tuple(sorted(names, key=lambda name: on_gpu and name != peer_copy.NAME))


def opened(name: str, arena: Arena, host: str = LOOPBACK, memory: Any = None) -> Transport:
    """Open the transport of this name for an arena; peers reach it at the address ``host`` of this machine.

    ``memory``: the memory this worker computes in, for transports that read devices' own memory.

    Raises UserError if the machine cannot use it.
    """
    make = TRANSPORTS[name]
    if name not in OPTIONAL:
        return make(arena) if name in ONE_HOST else make(arena, host)
    arguments = (arena, host, memory) if name in DIRECT else (arena, host)
    # NIXL takes seconds to import, so here its import is not first tried in another process.
    lack: object = nixl.absent() if name == nixl.NAME else lack_of(name)
    if lack is None:
        try:
            return make(*arguments)
        except (ImportError, OSError) as error:
            lack = error
    raise UserError(f"transport={name} cannot be used here ({lack}); or write transport=tcp") from None


def _without_shared_memory() -> str | None:
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return None  # files are used instead of memfd
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


_LACKS: Final[dict[str, Callable[[], str | None]]] = {
    shared_memory.NAME: _without_shared_memory,
    tcp.NAME: _without_tcp,
    nixl.NAME: nixl.missing,
    peer_copy.NAME: peer_copy.missing,
    groups.NCCL: partial(groups.missing, groups.NCCL),
    groups.GLOO: partial(groups.missing, groups.GLOO),
}
