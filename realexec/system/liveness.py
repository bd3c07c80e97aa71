"""Whether another process of this machine runs, according to the operating system."""

import time
from pathlib import Path
from typing import Final

# Runnable but not scheduled (R), or waiting for a disk (D): such a process is healthy.
_WAITS_ITS_TURN: Final = "RD"
_CPUCLOCK_SCHED: Final = 2  # the clock of a process's CPU time, see clock_getcpuclockid(3)
# Threads that wait for the interpreter lock retry every 5 ms: they use CPU time without any progress.
_IDLE_SHARE: Final = 0.02


class ProcessClock:
    """The CPU time of a process, compared with that at the last check.

    If the operating system does not report it, the process counts as never having run.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = self._now()

    def ran(self) -> bool:
        """Whether it has run since the last call, or is only waiting for a processor or a disk."""
        before, self._seen = self._seen, self._now()
        passed_ns, used_ns = (now - then for now, then in zip(self._seen, before))
        return used_ns > _IDLE_SHARE * passed_ns or self.state() in _WAITS_ITS_TURN

    def cpu_ns(self) -> int:
        """Its CPU time so far; 0 if the system does not report it or the process has exited."""
        return self._now()[1]

    def state(self) -> str:
        """Linux's state letter: T stopped, S waiting, ...; ``?`` if it is not known."""
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return "?"
        return stat.rpartition(")")[2].split()[0]

    def _now(self) -> tuple[int, int]:
        """The time now and the process's CPU time, both in ns."""
        return time.monotonic_ns(), cpu_time_ns(self._pid)


def cpu_time_ns(pid: int) -> int:
    """CPU time of a process so far; 0 if the system does not report it."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0
