"""A Ray actor that starts one server on its node, under a keeper that ends with it, and what it tells."""

import os
import tempfile
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from realexec.http.kept_server import KeptServer
from realexec.http.server_hosts import free_port
from realexec.launchers.ray_actor import Where, where_here

MOST_LOG_BYTES: Final = 1 << 18  # of a server's output in one answer


class Place(NamedTuple):
    """Where a server can be. ``port``: nothing listens there. ``gpus``: ids of those that Ray gave it."""

    where: Where
    port: int
    gpus: tuple[int | str, ...]


class ServerLook(NamedTuple):
    """``began_ns``, ``ended``: see ``Seen``, by this node's clock, which is at ``now_ns``.

    ``log``: what the server has written since the previous look. It has ended once nothing is left of that.
    """

    began_ns: int | None
    now_ns: int
    ended: str
    log: bytes


class ServerActor:
    """The actor, created by ``ray.remote``. Its server ends with it."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - has no name, so nothing is left of it
        self._read = 0
        self._kept: KeptServer | None = None

    def place(self) -> Place:
        """Describe this node and a port of it."""
        import ray

        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        return Place(where_here(), free_port(""), tuple(gpus))

    def start(self, command: Sequence[str]) -> None:
        """Start the server's process."""
        self._kept = KeptServer(command, (), self._log.fileno(), apart=True)

    def look(self) -> ServerLook:
        """Return the state of the server's process. Does not block."""
        assert self._kept is not None
        began_ns, ended = self._kept.look()
        log = os.pread(self._log.fileno(), MOST_LOG_BYTES, self._read)
        self._read += len(log)
        return ServerLook(began_ns, time.monotonic_ns(), "" if len(log) == MOST_LOG_BYTES else ended, log)

    def tell(self, what: bytes) -> None:
        """Tell the keeper TERMINATE or KILL."""
        if self._kept is not None:
            self._kept.tell(what)
