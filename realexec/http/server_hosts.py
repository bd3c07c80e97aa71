"""Where servers are started: this host, or others that a cluster gives."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from realexec.http.client import Address
from realexec.http.kept_server import KeptServer, Seen
from serving.vocabulary.errors import UserError

LOOPBACK: Final = "127.0.0.1"


class Seat(Protocol):
    """The place of one server on a host. Nothing here blocks.

    ``address``: where the server is to answer. ``placed_ns``: when the host was found, by CLOCK_MONOTONIC;
    None: nothing had to be.
    """

    address: Address
    placed_ns: int | None

    def facts(self) -> dict[str, Any]:
        """What summary.json says of the place."""

    def start(self, command: Sequence[str], log: Path) -> None:
        """Start the server's process under a keeper; its output is appended to ``log`` on this host."""

    def look(self) -> Seen:
        """Return what is known of the process by now; times are of the clock of this host."""

    def tell(self, what: bytes) -> None:
        """Tell the keeper TERMINATE or KILL."""

    def free(self) -> None:
        """Give the place back; its process has ended or was never started. May be called twice."""


class Hosts(Protocol):
    """What gives servers their places."""

    @property
    def end_s(self) -> float:
        """Seconds after which the end of a process is known for sure."""

    def open(self) -> None:
        """Reach the hosts. Raises UserError if they cannot be reached or have no room."""

    async def seat(self, until_ns: int) -> Seat:
        """Return a place for a server. Raises NotReady if none is found until then."""

    def close(self) -> None:
        """No server is left."""


class ThisHost:
    """Places on this host. ``cores``: for each server alone; None: all of the machine."""

    end_s: Final = 1.0

    def __init__(self, cores: int | None, servers: int) -> None:
        here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._count = cores or 0
        self._free = here if cores is not None else []
        if servers * self._count > len(here):
            raise UserError(
                f"http.cores={cores} for each of {servers} servers needs {servers * self._count} cores "
                f"of {len(here)}: write fewer, or leave http.cores out"
            )

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    async def seat(self, until_ns: int) -> "SeatHere":
        """Return a place with a free port and cores of its own."""
        taken, self._free = self._free[: self._count], self._free[self._count :]
        return SeatHere(free_port(LOOPBACK), taken, self)

    def take_back(self, cores: Sequence[int]) -> None:
        """The cores are free again."""
        self._free = sorted([*self._free, *cores])


class SeatHere:
    """A place on this host."""

    placed_ns: int | None = None

    def __init__(self, port: int, cores: Sequence[int], host: ThisHost) -> None:
        self.address = Address("http", LOOPBACK, port)
        self._cores, self._host = tuple(cores), host
        self._kept: KeptServer | None = None
        self._freed = False

    def facts(self) -> dict[str, Any]:
        """Return its port and cores."""
        return {"port": self.address.port, "cores": list(self._cores)}

    def start(self, command: Sequence[str], log: Path) -> None:
        """Start the server's process."""
        with log.open("ab") as file:
            self._kept = KeptServer(command, self._cores, file.fileno())

    def look(self) -> Seen:
        """Return what its keeper says."""
        return Seen(None, "") if self._kept is None else self._kept.look()

    def tell(self, what: bytes) -> None:
        """Tell the keeper."""
        if self._kept is not None:
            self._kept.tell(what)

    def free(self) -> None:
        """Close the keeper's pipes; give the cores back."""
        if self._kept is not None:
            self._kept.close()
        if not self._freed:
            self._freed = True
            self._host.take_back(self._cores)


def free_port(host: str) -> int:
    """Return a port of this host that nothing listens on. ``host``: one of its addresses; "": all of them."""
    with socket.socket() as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
        return port
