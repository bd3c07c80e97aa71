"""Settings that a process makes for itself with Linux's prctl(2); no-ops on other systems."""

import ctypes
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36


def end_with_starting_thread() -> None:
    """Have the kernel kill this process as soon as the thread that started it ends."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends: none of them can leave unseen."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def set_name(name: str) -> None:
    """Name the calling thread, as `ps -o comm` and `top` show it; Linux keeps 15 characters."""
    if sys.platform == "linux":
        _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def _prctl(option: int, value: ctypes.c_ulong | ctypes.c_char_p) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
