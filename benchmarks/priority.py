"""Real-time priority for what is measured, so that other work of the machine does not delay it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def set_policy(thread: int, policy: int) -> bool:
    """Set a thread's scheduling policy; returns whether this user may."""
    with suppress(OSError, AttributeError):  # not permitted, ended meanwhile, or no Linux
        os.sched_setscheduler(thread, policy, os.sched_param(int(policy != os.SCHED_OTHER)))
        return True
    return False


@contextmanager
def ahead_of_other_work(processes: Sequence[int]) -> Iterator[bool]:
    """Give all threads of these processes and this thread real-time priority, where this user may.

    Yields whether they have it. Threads and processes that they start meanwhile have it too.
    """
    got = [set_policy(thread, os.SCHED_RR) for thread in (0, *threads_of(processes))]
    try:
        yield all(got)
    finally:
        for thread in (0, *threads_of(processes)):
            set_policy(thread, os.SCHED_OTHER)


def threads_of(processes: Sequence[int]) -> list[int]:
    """The threads that these processes have now."""
    found: list[int] = []
    for process in processes:
        with suppress(OSError):
            found += [int(path.name) for path in Path(f"/proc/{process}/task").iterdir()]
    return found
