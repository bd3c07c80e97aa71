"""Whether another process of this machine runs, by the system's account rather than by its own word."""

import time
from pathlib import Path
from typing import Final

# A process that can run and is not let, or that waits for a disk: there is nothing wrong with it.
_WAITS_ITS_TURN: Final = "RD"
_CPUCLOCK_SCHED: Final = 2  # the clock of a process's CPU time, see clock_getcpuclockid(3)
# Threads that wait for the interpreter's lock look for it every 5 ms: they run, and get nowhere.
_IDLE_SHARE: Final = 0.02


class ProcessClock:
    """The CPU time of a process, and what it was at the last look.

    Where the system does not tell, nobody ever ran.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = self._now()

    def ran(self) -> bool:
        """Whether it has run since the last call, or would if it had its turn."""
        before, self._seen = self._seen, self._now()
        passed_ns, used_ns = (now - then for now, then in zip(self._seen, before))
        return used_ns > _IDLE_SHARE * passed_ns or self.state() in _WAITS_ITS_TURN

    def cpu_ns(self) -> int:
        """Its CPU time so far; 0 where the system does not tell, or it has gone."""
        return self._now()[1]

    def state(self) -> str:
        """Linux's letter for it: T stopped, S waiting, ...; ``?`` where that is not known."""
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return "?"
        return stat.rpartition(")")[2].split()[0]

    def _now(self) -> tuple[int, int]:
        """Time, and CPU time."""
        return time.monotonic_ns(), cpu_time_ns(self._pid)


def cpu_time_ns(pid: int) -> int:
    """What a process has had of processors so far; 0 where the system does not tell."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0
