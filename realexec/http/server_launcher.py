"""Starts and ends servers as processes of this host; assigns their ports, cores and logs, and frees them."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from realexec.http.client import Address
from realexec.http.instance_launcher import NOWHERE, NotReady, first_answer
from realexec.http.probe import Server
from realexec.http.server_process import LOOK_S, ServerProcess
from realexec.http.start_book import StartBook
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

LOGS: Final = "servers"  # folder of the logs, in the result folder
_END_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """``command``: the words of the command by port and number of the server. ``model``, ``key``: see probe.

    ``timeout_s``: until it must have answered a request; ``kill_s``: from SIGTERM to SIGKILL; ``cores``: for
    each server alone, None: all of the machine.
    """

    command: Callable[[int, int], Sequence[str]]
    model: str | None
    key: str | None
    timeout_s: float
    kill_s: float
    cores: int | None


class ServerLauncher:
    """The processes of all servers: an ``InstanceLauncher``.

    Use as a context manager: at its end none is left.
    """

    def __init__(self, rules: StartRules, servers: int, folder: Path) -> None:
        self.what, self.servers = "server that http.start starts", servers
        self.like: Server | None = None
        self.model, self.key = rules.model, rules.key
        self._rules, self._folder, self._book = rules, folder / LOGS, StartBook()
        self._running: dict[int, ServerProcess] = {}
        self._addresses: dict[int, Address] = {}
        here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._free_cores = here if rules.cores is not None else []
        if rules.cores is not None and servers * rules.cores > len(here):
            raise UserError(
                f"http.cores={rules.cores} for each of {servers} servers needs {servers * rules.cores} cores "
                f"of {len(here)}: write fewer, or leave http.cores out"
            )

    def __enter__(self) -> "ServerLauncher":
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = list(self._running.values())
        for process in running:
            process.kill() if kind is not None else process.terminate()
        until_s = time.monotonic() + self._rules.kill_s
        while any(not process.ended for process in running) and time.monotonic() < until_s:
            time.sleep(0.02)
        for process in running:
            process.kill()
        while any(not process.ended for process in running):
            time.sleep(0.02)
        for process in running:
            process.forget()
        self._running.clear()

    @property
    def running(self) -> Collection[int]:
        """The servers whose processes were started and not stopped."""
        return self._running.keys()

    def address(self, number: int) -> Address:
        """Where a server is, or was last; ``NOWHERE`` if it was never started."""
        return self._addresses.get(number, NOWHERE)

    async def why_ended(self, number: int) -> str:
        """How the process of a server ended that does not answer; empty if it runs on."""
        process = self._running.get(number)
        until_s = time.monotonic() + _END_S  # its keeper first ends what the server had started
        while process is not None and time.monotonic() < until_s:
            if process.ended:
                return process.ended
            await asyncio.sleep(LOOK_S)
        return ""

    async def start(self, number: int) -> None:
        """Start a server and wait until it has answered a request. Raises NotReady if it does not."""
        until_ns = time.monotonic_ns() + round(self._rules.timeout_s * NS_PER_S)
        process = self._launched(number)
        try:
            await process.listed(self.key, until_ns)
            await first_answer(process.address, self.model, self.key, until_ns)
            process.answered()
        except BaseException as error:
            process.kill()
            await asyncio.shield(self.stop(number, failed=isinstance(error, NotReady)))
            raise
        self._book.started(number, process.report())

    def _launched(self, number: int) -> ServerProcess:
        port = _free_port()
        count = self._rules.cores or 0
        cores, self._free_cores = self._free_cores[:count], self._free_cores[count:]
        process = ServerProcess(
            number,
            self._rules.command(port, number),
            port=port,
            cores=cores,
            log=self._folder / f"{number}.log",
        )
        self._running[number] = process
        self._addresses[number] = process.address
        return process

    async def stop(self, number: int, failed: bool = False) -> None:
        """End a server and free its port and cores; nothing if none runs."""
        process = self._running.get(number)
        if process is None:
            return
        began_s = time.monotonic()
        killed = await process.stopped(self._rules.kill_s)
        if self._running.get(number) is process:
            del self._running[number]
            self._free_cores = sorted([*self._free_cores, *process.cores])
        if failed:
            self._book.failed()
        else:
            self._book.ended(killed, time.monotonic() - began_s)

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""
        return self._book.gives_up

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``; ``cold``: the first start of each server."""
        return self._book.report()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
