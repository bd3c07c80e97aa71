"""Waits before a measurement until other programs leave the machine's cores alone."""

import time
from pathlib import Path
from typing import Any, Final

from realexec.calibration.quiet import MOST_WALL_OVER_CPU

# If others use this share of the cores, a process waits for its core as long as quiet.py allows.
MOST_BUSY: Final = 1 - 1 / MOST_WALL_OVER_CPU
_LOOK_S: Final = 1.0
MOST_WAIT_S: Final = 60.0
_STAT: Final = Path("/proc/stat")
_IDLE: Final = (3, 4)  # columns idle and iowait of the line "cpu" (proc(5)); guest time counts as user time
_COLUMNS: Final = 8


def wait_until_quiet(most_wait_s: float) -> dict[str, Any]:
    """Wait for a second in which the machine is quiet, at most so long; return what was seen last.

    ``busy_share``: of all cores, None if the system does not say; ``quiet``: it was at most ``MOST_BUSY``.
    """
    began_s = time.monotonic()
    while True:
        share = _busy_share()
        waited_s = time.monotonic() - began_s
        if share is None or share <= MOST_BUSY or waited_s >= most_wait_s:
            return {
                "busy_share": share,
                "quiet": share is None or share <= MOST_BUSY,
                "waited_s": round(waited_s, 1),
            }


def _busy_share() -> float | None:
    """Return the share of the cores' time that was used in the next second; None without /proc/stat."""
    try:
        before = _ticks()
        time.sleep(_LOOK_S)
        spent = [now - then for now, then in zip(_ticks(), before, strict=True)]
    except (OSError, ValueError, IndexError):
        return None
    return 1 - sum(spent[column] for column in _IDLE) / sum(spent) if sum(spent) else None


def _ticks() -> list[int]:
    return [int(word) for word in _STAT.read_text(encoding="ascii").splitlines()[0].split()[1 : _COLUMNS + 1]]
