"""Progress of a series of runs: a bar on a terminal, otherwise an occasional line."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from servetwin.run.progress import progress_bar

EVERY_S: Final = 10.0
SELDOM_S: Final = 30.0


@contextmanager
def heartbeat(title: str, total: int, done_before: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of finished points. Lines go to stderr."""
    with progress_bar(title) as bar:
        if bar is not None:
            bar(done_before, total)
            yield lambda done: bar(done, total)
        else:
            yield _lines(title, total, done_before)


def _lines(title: str, total: int, done_before: int) -> Callable[[int], None]:
    began_s = told_s = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s < EVERY_S or sys.stderr is None:
            return
        told_s = now_s
        left_s = (now_s - began_s) / max(done - done_before, 1) * (total - done)
        print(f"{title}: {done} of {total}, about {left_text(left_s)} left", file=sys.stderr, flush=True)

    return tell


def tasks_done(title: str, what: str, every_s: float = SELDOM_S) -> Callable[[object], None]:
    """Return a callback of finished tasks, of which nobody knows how many follow: a line now and then."""
    told_s, done, lock = time.monotonic(), 0, threading.Lock()

    def tell(_: object) -> None:
        nonlocal told_s, done
        with lock:
            done += 1
            if time.monotonic() - told_s < every_s or sys.stderr is None:
                return
            told_s = time.monotonic()
            print(f"{title}: {done} {what}", file=sys.stderr, flush=True)

    return tell


def left_text(left_s: float) -> str:
    """Format the remaining time, such as ``1 min 20 s``."""
    minutes, seconds = divmod(round(left_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
