"""An exception of one thread that is to end another: a worker says why it ends when its main thread does."""

from collections.abc import Callable


def raising(error: Exception) -> Callable[[], None]:
    """What raises it where it is called."""

    def call() -> None:
        raise error

    return call
