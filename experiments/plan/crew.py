"""Runs searches in a few long-lived processes, so that each imports the simulator once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from typing import Any

Submit = Callable[..., "Future[Any]"]


@contextmanager
def crew(processes: int) -> Iterator[Submit]:
    """Yield a function like ``Executor.submit``; with one process it runs each task at once in this one."""
    if processes == 1:
        yield _here
        return
    from joblib.externals.loky import get_reusable_executor

    pool = get_reusable_executor(max_workers=processes)
    try:
        yield pool.submit
    except BaseException:
        pool.shutdown(wait=False, kill_workers=True)
        raise


def _here(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(function(*arguments))
    return done


def in_order(futures: Sequence[Future[Any]], on_done: Callable[[int], None] | None = None) -> list[Any]:
    """Return the results in order; ``on_done`` receives the number finished so far."""
    for count, _ in enumerate(as_completed(futures), 1):
        if on_done is not None:
            on_done(count)
    return [future.result() for future in futures]
