"""Starts and ends servers as processes of this host; assigns their ports, cores and logs, and frees them."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from realexec.http.client import Address
from realexec.http.dialects import Wish
from realexec.http.probe import Server, kind_of, model_of, probe
from realexec.http.server_process import LOOK_S, NotReady, ServerProcess
from realexec.http.stream import Refused, tokens_of
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

LOGS: Final = "servers"  # folder of the logs, in the result folder
_FIRST_TOKENS: Final = 3
_END_S: Final = 1.0
_MOST_FAILURES: Final = 3
NOWHERE: Final = Address("http", "127.0.0.1", 9)  # of a server that was not started yet


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


@dataclass(slots=True)
class _Counts:
    failed: int = 0
    terminated: int = 0
    killed: int = 0
    stop_s: list[float] = field(default_factory=list)


class ServerLauncher:
    """The processes of all servers. Use as a context manager: at its end none is left."""

    def __init__(self, rules: StartRules, servers: int, folder: Path) -> None:
        self._rules, self._servers, self._folder = rules, servers, folder / LOGS
        self._running: dict[int, ServerProcess] = {}
        self._addresses: dict[int, Address] = {}
        self._starts: list[dict[str, Any]] = []
        self._counts = _Counts()
        self._failed_in_a_row = 0
        self._like: Server | None = None
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

    # Before the run.

    def first(self) -> Server:
        """Start server 0 and probe it: others are like it. Raises UserError."""

        async def started() -> Server:
            try:
                await self.start(0)
            except NotReady as error:
                raise UserError(f"the server that http.start starts is of no use: {error}") from None
            return await probe(self._running[0].address, self._rules.model, self._rules.key, 60.0)

        self._like = asyncio.run(started())
        return self._like

    def others(self, numbers: Sequence[int]) -> tuple[Server, ...]:
        """Start these servers at the same time; stop server 0 if it is not among them. Raises UserError."""

        async def started() -> None:
            wanted = [number for number in numbers if number not in self._running]
            try:
                await asyncio.gather(*[self.start(number) for number in wanted])
            except NotReady as error:
                raise UserError(f"a server that http.start starts is of no use: {error}") from None
            for number in set(self._running) - set(numbers):
                await self.stop(number)

        asyncio.run(started())
        return tuple([self.server(number) for number in range(self._servers)])

    # At any time.

    def server(self, number: int) -> Server:
        """The server as it runs now or ran last; at ``NOWHERE`` if it was never started."""
        assert self._like is not None, "server 0 was not probed"
        return replace(self._like, address=self._addresses.get(number, NOWHERE))

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
            await process.listed(self._rules.key, until_ns)
            await self._answers(process.address, until_ns)
            process.answered()
        except BaseException as error:
            process.kill()
            await asyncio.shield(self.stop(number, failed=isinstance(error, NotReady)))
            raise
        self._failed_in_a_row = 0
        later = any(start["server"] == number for start in self._starts)
        self._starts.append({**process.report(), "kind": "warm" if later else "cold"})

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

    async def _answers(self, address: Address, until_ns: int) -> None:
        left_s, key = max(0.0, (until_ns - time.monotonic_ns()) / NS_PER_S), self._rules.key
        try:
            async with asyncio.timeout(left_s):
                name, _ = await model_of(address, self._rules.model, key, left_s)
                dialect, _, _ = await kind_of(address, key, left_s)
                wish = Wish(name, tuple(range(1, 9)), _FIRST_TOKENS, "servetwin-ready")
                async for _ in tokens_of(address, dialect, wish, key):
                    pass
        except (OSError, Refused, ValueError) as error:
            raise NotReady(f"it does not answer a first request ({error or type(error).__name__})") from None

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
            self._counts.failed += 1
            self._failed_in_a_row += 1
            return
        self._counts.killed += killed
        self._counts.terminated += not killed
        self._counts.stop_s.append(time.monotonic() - began_s)

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""
        return self._failed_in_a_row >= _MOST_FAILURES

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``; ``cold``: the first start of each server."""
        counts = self._counts
        return {
            "servers": self._starts,
            "cold": _means([start for start in self._starts if start["kind"] == "cold"]),
            "warm": _means([start for start in self._starts if start["kind"] == "warm"]),
            "failed": counts.failed,
            "stopped": {"by_sigterm": counts.terminated, "by_sigkill": counts.killed},
            "stop_s": sum(counts.stop_s) / len(counts.stop_s) if counts.stop_s else None,
        }


def _means(starts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The means over starts of each phase that all of them have."""
    names = ["process_s", "first_log_s", "listens_s", "listed_s", "ready_s"]
    return {
        name: sum([start[name] for start in starts]) / len(starts)
        for name in names
        if starts and all(name in start for start in starts)
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
