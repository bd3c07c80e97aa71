"""Raise one thread's exception in another: a worker reports its cause when its main thread raises it."""

from collections.abc import Callable


def raising(error: Exception) -> Callable[[], None]:
    """Return a function that raises ``error`` where it is called."""

    def call() -> None:
        raise error

    return call
