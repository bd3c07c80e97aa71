"""What every launcher promises: start these workers, say where they are and whether they live, end them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Process(Protocol):
    """One worker's process, wherever it runs. Any thread may call."""

    @property
    def pid(self) -> int:
        """Its number on its host."""

    @property
    def far_clock(self) -> bool:
        """Whether its ``time.monotonic`` is another than this process's."""

    def ended(self) -> str | None:
        """How it ended; None while it runs, or where that is not known yet. Waits for nothing."""

    def end_within(self, seconds: float) -> str | None:
        """Its connection has ended: how it ended itself. None when it has not after all that time."""

    def cut_off(self) -> str | None:
        """Why nothing will be heard of it any more though its connection stands; None: it may be heard of."""

    def ran(self) -> bool:
        """Whether it has run since the last call, or would have if it had had its turn."""

    def silence(self) -> str:
        """Why it may be that nothing is heard of it, to be told after a colon."""

    def cpu_ns(self) -> int:
        """CPU time so far; 0 once it has gone, or where nobody tells."""

    def kill(self) -> None:
        """End it; waits for nothing."""

    def close(self) -> None:
        """End it now; returns when it has gone."""


class Launcher(Protocol):
    """Opened once, by the thread that outlives it; it carries no bytes of a run."""

    def open(self, workers: int) -> str | None:
        """Take places for so many. Returns at which address of this machine they reach the driver by TCP;
        None: by a Unix socket. Raises UserError where there is no room."""

    def start(self, worker: int, start: Mapping[str, Any]) -> Process:
        """Start one in its place. ``start``: what `realexec.worker_process.main` is told, as JSON."""

    @property
    def one_host(self) -> bool:
        """Whether all of them run on the host of this process."""

    @property
    def addresses(self) -> Sequence[str]:
        """At which address of its host each worker is reached by the others."""

    @property
    def places(self) -> Sequence[str]:
        """Where each worker is, in words; the same words for the same node."""

    def close(self) -> None:
        """Give the places back. Twice does no harm, nor before `open`."""
