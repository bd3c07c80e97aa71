"""Interface of launchers: start workers, report where they run and whether they are alive, end them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Process(Protocol):
    """One worker's process, on this host or another one. Its methods may be called from any thread."""

    @property
    def pid(self) -> int:
        """PID of the worker on its host."""

    @property
    def remote_clock(self) -> bool:
        """Whether the worker's ``time.monotonic`` is a different clock from that of this process."""

    def ended(self) -> str | None:
        """Return how the process ended; None while it runs or its end is not known yet. Does not block."""

    def end_within(self, seconds: float) -> str | None:
        """After its connection closed, wait for the process to end. Return how it ended; None on timeout."""

    def cut_off(self) -> str | None:
        """Return why no more messages can come although the connection is open; None: they may still come."""

    def ran(self) -> bool:
        """Whether the process has run since the last call, or was only waiting to be scheduled."""

    def silence(self) -> str:
        """Return a possible reason for the worker's silence, worded to follow a colon in a message."""

    def cpu_ns(self) -> int:
        """Return the CPU time so far in ns; 0 once the process has ended, or if it is not known."""

    def kill(self) -> None:
        """Kill the process. Does not block."""

    def close(self) -> None:
        """Kill the process; return when it has exited."""


class Launcher(Protocol):
    """Starts workers. A thread that outlives it opens it once; no data of a run passes through it."""

    def open(self, workers: int) -> str | None:
        """Reserve places for this many workers. Return the address of this machine at which they reach the
        driver by TCP; None: they use a Unix socket. Raises UserError if there is no room."""

    def start(self, worker: int, start: Mapping[str, Any]) -> Process:
        """Start a worker in its place. ``start``: argument of `worker_process.main`, as JSON."""

    @property
    def one_host(self) -> bool:
        """Whether all workers run on the host of this process."""

    @property
    def addresses(self) -> Sequence[str]:
        """For each worker, the address of its host at which other workers reach it."""

    @property
    def places(self) -> Sequence[str]:
        """For each worker, a description of its node; equal for workers of the same node."""

    def close(self) -> None:
        """Release the places. May be called twice, and before `open`."""
