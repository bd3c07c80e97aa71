"""A Ray actor that starts one worker process on its node and reports on it; no data of a run passes it."""

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from realexec.launchers.local import LocalProcess

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Where(NamedTuple):
    """The node of an actor. ``boot``: boot id of its host, equal for all nodes on it; "" if not known."""

    node: str
    address: str
    boot: str
    python: str


class Look(NamedTuple):
    """State of an actor's worker process: how it ended, or whether it ran since the previous look."""

    ended: str | None
    ran: bool
    silence: str
    cpu_ns: int


class WorkerActor:
    """The actor, created by ``ray.remote`` in a place of the placement group. Its worker ends with it."""

    def __init__(self) -> None:
        self._process: LocalProcess | None = None

    def where(self) -> Where:
        """Describe this node."""
        return where_here()

    def start(self, worker: int, start: Mapping[str, Any]) -> int:
        """Start the worker as `LocalLauncher` does, in a fresh interpreter; return its PID on this node."""
        self._process = LocalProcess(worker, start)
        return self._process.pid

    def look(self) -> Look:
        """Return the state of the worker process. Does not block."""
        assert self._process is not None
        ended = self._process.ended()
        if ended is not None:
            return Look(ended, False, "", 0)
        return Look(None, self._process.ran(), self._process.silence(), self._process.cpu_ns())

    def kill(self) -> None:
        """Kill the process. Does not block."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kill the process; return when it has exited."""
        if self._process is not None:
            self._process.close()


def where_here() -> Where:
    """Describe the node of the actor that calls."""
    import ray

    context = ray.get_runtime_context()
    return Where(context.get_node_id(), ray.util.get_node_ip_address(), boot_id(), _python())


def boot_id() -> str:
    """Return the boot id of this host. Processes with the same boot id share one clock."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _python() -> str:
    return f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
