"""A worker does not outlive the process that started it, however that one ends.

A worker that waits for a message sees that its connection is closed; one that imports or computes would not
for seconds.
"""

import os
import threading
from typing import Final

from realexec import prctl

_READ_BYTES: Final = 4096


def end_with_parent(parent: int, lifeline: int) -> None:
    """From now on this process ends when its parent has. Call it in the process that was started.

    ``parent`` is the number of the process that started it, ``lifeline`` a pipe whose other end it alone has,
    or the process that has it started.
    """
    prctl.end_with_starting_thread()
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
    threading.Thread(target=_end_after, args=(lifeline,), name="parent", daemon=True).start()


def _end_after(lifeline: int) -> None:
    """On other systems, and where the starting process lives on but has let go of this one."""
    while os.read(lifeline, _READ_BYTES):
        pass
    os._exit(1)  # the main thread may be deep in a computation
