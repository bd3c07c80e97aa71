"""Starts and ends servers as processes of this host or others; assigns places and logs, and frees them."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from realexec.http.client import Address
from realexec.http.instance_launcher import NOWHERE, NotReady, first_answer
from realexec.http.probe import Server
from realexec.http.server_hosts import Hosts, ThisHost
from realexec.http.server_process import LOOK_S, ServerProcess
from realexec.http.start_book import StartBook
from serving.vocabulary.units import NS_PER_S

LOGS: Final = "servers"  # folder of the logs, in the result folder


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """``command``: its words by address and number of the server. ``model``, ``key``: see probe.

    ``timeout_s``: until it must have answered a request; ``kill_s``: from SIGTERM to SIGKILL; ``cores``: for
    each server alone, None: all of the machine.
    """

    command: Callable[[Address, int], Sequence[str]]
    model: str | None
    key: str | None
    timeout_s: float
    kill_s: float
    cores: int | None


class ServerLauncher:
    """The processes of all servers: an ``InstanceLauncher``. ``hosts``: where they run; None: on this host.

    Use as a context manager: at its end none is left.
    """

    def __init__(self, rules: StartRules, servers: int, folder: Path, hosts: Hosts | None = None) -> None:
        self.what, self.servers = "server that http.start starts", servers
        self.like: Server | None = None
        self.model, self.key = rules.model, rules.key
        self._rules, self._folder, self._book = rules, folder / LOGS, StartBook()
        self._hosts = ThisHost(rules.cores, servers) if hosts is None else hosts
        self._running: dict[int, ServerProcess] = {}
        self._addresses: dict[int, Address] = {}

    def __enter__(self) -> "ServerLauncher":
        try:
            self._hosts.open()
            self._folder.mkdir(parents=True, exist_ok=True)
        except BaseException:
            self._hosts.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_all(at_once=kind is not None)
        finally:
            self._hosts.close()

    def _end_all(self, at_once: bool) -> None:
        running = list(self._running.values())
        for process in running:
            process.kill() if at_once else process.terminate()
        until_s = time.monotonic() + self._rules.kill_s
        while any(not process.ended for process in running) and time.monotonic() < until_s:
            time.sleep(0.02)
        for process in running:
            process.kill()
        while any(not process.ended for process in running):
            time.sleep(0.02)
        for process in running:
            process.seat.free()
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
        until_s = time.monotonic() + self._hosts.end_s  # its keeper first ends what the server had started
        while process is not None and time.monotonic() < until_s:
            if process.ended:
                return process.ended
            await asyncio.sleep(LOOK_S)
        return ""

    async def start(self, number: int) -> None:
        """Start a server and wait until it has answered a request. Raises NotReady if it does not."""
        began_ns = time.monotonic_ns()
        until_ns = began_ns + round(self._rules.timeout_s * NS_PER_S)
        process = await self._launched(number, began_ns, until_ns)
        try:
            await process.listed(self.key, until_ns)
            await first_answer(process.seat.address, self.model, self.key, until_ns)
            process.answered()
        except BaseException as error:
            process.kill()
            await asyncio.shield(self.stop(number, failed=isinstance(error, NotReady)))
            raise
        self._book.started(number, process.report())

    async def _launched(self, number: int, began_ns: int, until_ns: int) -> ServerProcess:
        try:
            seat = await self._hosts.seat(until_ns)
        except NotReady:
            self._book.failed()
            raise
        try:
            command, log = self._rules.command(seat.address, number), self._folder / f"{number}.log"
            process = ServerProcess(seat, command, log, began_ns)
        except BaseException:
            seat.free()
            raise
        self._running[number] = process
        self._addresses[number] = seat.address
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
        process.seat.free()
        if failed:
            self._book.failed()
        else:
            self._book.ended(killed, time.monotonic() - began_s)

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""
        return self._book.gives_up

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``; ``cold``: the first of each server on a host."""
        return self._book.report()
