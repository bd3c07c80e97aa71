"""Ends a worker process of a sweep, plan or figure with the process that started it, even a killed one."""

import os
import threading
import time
from typing import Final

from realexec.system import prctl

_LOOK_S: Final = 0.5


def tie() -> tuple[int, bool]:
    """Return the arguments of ``end_with_parent``; call it where the worker is started.

    The kernel ends a process with the thread that started it, so it is asked to only for the main thread.
    """
    return os.getpid(), threading.current_thread() is threading.main_thread()


def end_with_parent(parent: int, main_thread: bool) -> None:
    """Call this first in the worker. ``parent``: the pid of the process that started it."""
    if main_thread:
        prctl.end_with_starting_thread()
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
    threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()


def _end_after(parent: int) -> None:
    """End when another process has adopted this one: for other systems, and other threads."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)
