"""A worker does not outlive the process that started it, however that one ends.

A worker that waits for a message sees that its pipe is closed; one that imports or computes would not for
seconds.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def end_with_parent() -> None:
    """From now on this process ends when its parent has. Call it in the process that was started."""
    if sys.platform == "linux":
        # The kernel does it at once, whatever this process is at.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None:  # other systems; and one that died before the call above
        threading.Thread(target=_end_after, args=(parent.sentinel,), name="parent", daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # the main thread may be deep in a computation
