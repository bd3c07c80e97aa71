"""End a worker when the process that started it ends, however that happens.

A worker that waits for a message notices that its connection is closed. Without this module a worker that
imports or computes would notice only seconds later.
"""

import os
import threading
from typing import Final

from realexec.system import prctl

_READ_BYTES: Final = 4096


def end_with_parent(parent: int, lifeline: int) -> None:
    """End this process when its parent has ended. Call it in the process that was started.

    ``parent``: the pid of the process that started it. ``lifeline``: a pipe whose other end is held only by
    the parent, or only by the process that had the parent start this one.
    """
    prctl.end_with_starting_thread()
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
    threading.Thread(target=_end_after, args=(lifeline,), name="parent", daemon=True).start()


def _end_after(lifeline: int) -> None:
    """End when the pipe closes: for other systems, and if the parent lives on but has released us."""
    while os.read(lifeline, _READ_BYTES):
        pass
    os._exit(1)  # the main thread may be deep in a computation
