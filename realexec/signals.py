"""Signals that end a run wait while a worker process is started.

Otherwise Ctrl-C leaves a worker half started, which then prints how it was interrupted, or what it missed.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def postponed() -> Iterator[None]:
    """What comes meanwhile comes at the end. A process started here has them blocked until ``let_in``."""
    came: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    # Another thread may take the signal, and the main one would be interrupted all the same.
    ours = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in ENDING if ours}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in came[:1]:
            signal.raise_signal(number)


def let_in() -> None:
    """In the process that was started, once it knows what to do about them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
