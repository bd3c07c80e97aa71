"""A stretch of a program without garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection: the event loop makes no reference cycles, and scanning costs 5 % of it.

    What the run before left behind is young, since it was not looked at meanwhile, and goes first; all that
    the process holds is not looked through.
    """
    gc.collect(1)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
