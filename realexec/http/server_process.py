"""One process of a server that the driver starts, from its start to its end, with its times by phase."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from realexec.http.client import Address, get_text
from realexec.http.dialects import MISFIT
from realexec.http.instance_launcher import NotReady
from realexec.http.server_keeper import BY_SIGNAL, KILL, TERMINATE
from realexec.http.start_log import device_of, phases_of
from serving.record.json_text import json_data
from serving.vocabulary.units import NS_PER_S

LOOK_S: Final = 0.05
# The keeper's modules are found without PYTHONPATH, which the server would inherit.
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_KEEPER: Final = """import sys
sys.path.insert(0, sys.argv.pop(1))
from realexec.http.instance_launcher import NotReady
from realexec.http.server_keeper import main
sys.exit(main())"""
_ANSWER_S: Final = 5.0  # a server that is still loading may hold a request
_TAIL_LINES: Final = 3
_MOST_LOG_BYTES: Final = 1 << 24


class ServerProcess:
    """``phases``: seconds from the decision to start it, as far as it has come.

    ``process_s``: its process runs. ``first_log_s``: it wrote to its log. ``listens_s``: its port is open.
    ``listed_s``: it lists its model. ``ready_s``: it has answered a first request.
    """

    def __init__(
        self, number: int, command: Sequence[str], *, port: int, cores: Sequence[int], log: Path
    ) -> None:
        self.number, self.command, self.cores, self.log = number, tuple(command), tuple(cores), log
        self.address = Address("http", "127.0.0.1", port)
        self.phases: dict[str, float] = {}
        self._began_ns = time.monotonic_ns()
        self._group: int | None = None  # the server's processes, once it has begun
        self._log_from = log.stat().st_size if log.exists() else 0
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", _KEEPER, _ROOT, str(log), ",".join(map(str, cores)), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the driver, which ends its servers in order
        )
        assert self._keeper.stdout is not None
        os.set_blocking(self._keeper.stdout.fileno(), False)

    def _mark(self, phase: str, at_ns: int | None = None) -> None:
        if phase not in self.phases:
            self.phases[phase] = ((at_ns or time.monotonic_ns()) - self._began_ns) / NS_PER_S

    @property
    def ended(self) -> str:
        """How the process ended; empty while it runs."""
        status = self._keeper.poll()
        if status is None:
            return ""
        if status < 0 and self._group is not None:  # the keeper was killed, and ended nothing
            with suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)
            self._group = None
        if status < 0 or status > BY_SIGNAL:
            number = -status if status < 0 else status - BY_SIGNAL
            return f"its process was ended by {signal.Signals(number).name}"
        return f"its process ended with exit status {status}"

    async def listed(self, key: str | None, until_ns: int) -> None:
        """Wait until it lists its model. Raises NotReady with the cause and the end of its log."""
        while time.monotonic_ns() < until_ns:
            self._look_at_process()
            if self.ended:
                raise NotReady(f"{self.ended}{self._told()}")
            if await self._listens() and await self._lists(key):
                return
            await asyncio.sleep(LOOK_S)
        came = ", ".join([name.removesuffix("_s") for name in self.phases]) or "nothing"
        raise NotReady(f"it serves no model in time, but came to {came}{self._told()}")

    def answered(self) -> None:
        """It has answered a first request."""
        self._mark("ready_s")

    def _look_at_process(self) -> None:
        assert self._keeper.stdout is not None
        if "process_s" not in self.phases and (line := self._keeper.stdout.read(64)):
            process, began_ns = line.split()
            self._group = int(process)
            self._mark("process_s", int(began_ns))
        if self.log.exists() and self.log.stat().st_size > self._log_from:
            self._mark("first_log_s")

    async def _listens(self) -> bool:
        if "listens_s" not in self.phases:
            try:
                _, writer = await asyncio.open_connection(self.address.host, self.address.port)
            except OSError:
                return False
            writer.transport.abort()
            self._mark("listens_s")
        return True

    async def _lists(self, key: str | None) -> bool:
        with suppress(OSError, ValueError, *MISFIT):
            status, text = await get_text(self.address, "/v1/models", _ANSWER_S, None, key)
            if status == 200 and json_data(text)["data"]:
                self._mark("listed_s")
                return True
        return False

    def _told(self) -> str:
        """The end of its log, in one line."""
        lines = [line.strip() for line in self._log_text().splitlines() if line.strip()]
        return f"; its log ends with: {' | '.join(lines[-_TAIL_LINES:])[-300:]}" if lines else ""

    def _log_text(self) -> str:
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(self._log_from)
            return file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
        return ""

    def report(self) -> dict[str, Any]:
        """What summary.json says of this start."""
        log = self._log_text()
        device = device_of(log)
        return {
            "port": self.address.port,
            "cores": list(self.cores),
            "log": f"{self.log.parent.name}/{self.log.name}",
            **self.phases,
            "log_says": phases_of(log),
            **({"device": device} if device is not None else {}),
        }

    # Ends.

    def terminate(self) -> None:
        """Ask it to end."""
        self._tell(TERMINATE)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        self._tell(KILL)

    def _tell(self, what: bytes) -> None:
        assert self._keeper.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            self._keeper.stdin.write(what)
            self._keeper.stdin.flush()

    async def stopped(self, kill_s: float) -> bool:
        """End it, by SIGKILL after ``kill_s``; returns whether that was needed."""
        self.terminate()
        until_ns = time.monotonic_ns() + round(kill_s * NS_PER_S)
        while not self.ended and time.monotonic_ns() < until_ns:
            await asyncio.sleep(LOOK_S)
        killed = not self.ended
        if killed:
            self.kill()
        while not self.ended:
            await asyncio.sleep(LOOK_S)
        self.forget()
        return killed

    def forget(self) -> None:
        """Close the pipes of an ended process."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
