"""Delay signals that end a run while a worker process is being started.

Otherwise Ctrl-C leaves a partly started worker, which then prints an interrupt or a missing-data error.
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
    """Deliver signals at the end of the block. A process started in it has them blocked until ``let_in``."""
    came: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    # Another thread may receive the signal, but Python would still interrupt the main thread.
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
    """Unblock the signals; called in the started process once its handlers are set."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
