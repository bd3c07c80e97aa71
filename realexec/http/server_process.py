"""One process of a server that the driver starts, from its start to its end, with its times by phase."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from realexec.http.client import get_text
from realexec.http.dialects import MISFIT
from realexec.http.instance_launcher import NotReady
from realexec.http.server_hosts import Seat
from realexec.http.server_keeper import KILL, TERMINATE
from realexec.http.start_log import device_of, phases_of
from serving.record.json_text import json_data
from serving.vocabulary.units import NS_PER_S

LOOK_S: Final = 0.05
_ANSWER_S: Final = 5.0  # a server that is still loading may hold a request
_TAIL_LINES: Final = 3
_MOST_LOG_BYTES: Final = 1 << 24


class ServerProcess:
    """``began_ns``: when it was decided to start it. ``phases``: seconds since then, as far as it has come.

    ``placed_s``: a cluster has given it a host. ``process_s``: its process runs. ``first_log_s``: it wrote to
    its log. ``listens_s``: its port is open. ``listed_s``: it lists its model. ``ready_s``: it has answered a
    first request.
    """

    def __init__(self, seat: Seat, command: Sequence[str], log: Path, began_ns: int) -> None:
        self.seat, self.log = seat, log
        self.phases: dict[str, float] = {}
        self._began_ns = began_ns
        self._log_from = log.stat().st_size if log.exists() else 0
        if seat.placed_ns is not None:
            self._mark("placed_s", seat.placed_ns)
        seat.start(command, log)

    def _mark(self, phase: str, at_ns: int | None = None) -> None:
        if phase not in self.phases:
            self.phases[phase] = ((at_ns or time.monotonic_ns()) - self._began_ns) / NS_PER_S

    @property
    def ended(self) -> str:
        """How the process ended; empty while it runs."""
        return self.seat.look().ended

    async def listed(self, key: str | None, until_ns: int) -> None:
        """Wait until it lists its model. Raises NotReady with the cause and the end of its log."""
        while time.monotonic_ns() < until_ns:
            if ended := self._looked():
                raise NotReady(f"{ended}{self._told()}")
            if await self._listens() and await self._lists(key):
                return
            await asyncio.sleep(LOOK_S)
        came = ", ".join([name.removesuffix("_s") for name in self.phases]) or "nothing"
        raise NotReady(f"it serves no model in time, but came to {came}{self._told()}")

    def answered(self) -> None:
        """It has answered a first request."""
        self._mark("ready_s")

    def _looked(self) -> str:
        """Mark how far its process has come; returns how it ended."""
        began_ns, ended = self.seat.look()
        if began_ns is not None:
            self._mark("process_s", began_ns)
        if self.log.exists() and self.log.stat().st_size > self._log_from:
            self._mark("first_log_s")
        return ended

    async def _listens(self) -> bool:
        if "listens_s" not in self.phases:
            try:
                _, writer = await asyncio.open_connection(self.seat.address.host, self.seat.address.port)
            except OSError:
                return False
            writer.transport.abort()
            self._mark("listens_s")
        return True

    async def _lists(self, key: str | None) -> bool:
        with suppress(OSError, ValueError, *MISFIT):
            status, text = await get_text(self.seat.address, "/v1/models", _ANSWER_S, None, key)
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
            **self.seat.facts(),
            "log": f"{self.log.parent.name}/{self.log.name}",
            **self.phases,
            "log_says": phases_of(log),
            **({"device": device} if device is not None else {}),
        }

    # Ends.

    def terminate(self) -> None:
        """Ask it to end."""
        self.seat.tell(TERMINATE)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        self.seat.tell(KILL)

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
        return killed
