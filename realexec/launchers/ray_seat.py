"""A Ray actor that starts one worker process on its node and tells of it; it carries no byte of a run."""

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from realexec.launchers.local import LocalProcess

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Where(NamedTuple):
    """The node of a seat. ``boot``: of its host, the same for all nodes there; "" where nobody tells."""

    node: str
    address: str
    boot: str
    python: str


class Look(NamedTuple):
    """What a seat saw of its process: how it ended, or whether it ran since the look before."""

    ended: str | None
    ran: bool
    silence: str
    cpu_ns: int


class Seat:
    """Ray makes it, with ``ray.remote``, where a placement group has room. Its process ends with it."""

    def __init__(self) -> None:
        self._process: LocalProcess | None = None

    def where(self) -> Where:
        """This node."""
        import ray

        context = ray.get_runtime_context()
        return Where(context.get_node_id(), ray.util.get_node_ip_address(), boot_id(), _python())

    def start(self, worker: int, start: Mapping[str, Any]) -> int:
        """The same interpreter as for a worker of one machine; returns its number here."""
        self._process = LocalProcess(worker, start)
        return self._process.pid

    def look(self) -> Look:
        """Waits for nothing."""
        assert self._process is not None
        ended = self._process.ended()
        if ended is not None:
            return Look(ended, False, "", 0)
        return Look(None, self._process.ran(), self._process.silence(), self._process.cpu_ns())

    def kill(self) -> None:
        """End the process; waits for nothing."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process; returns when it has gone."""
        if self._process is not None:
            self._process.close()


def boot_id() -> str:
    """Of this host: whoever has the same shares its clocks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _python() -> str:
    return f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
