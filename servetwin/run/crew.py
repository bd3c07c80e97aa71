"""Runs tasks in a few long-lived processes: each imports the simulator once, and ends with this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from typing import Any, Final

from servetwin.run.end_with_parent import end_with_parent, tie

_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Submit = Callable[..., "Future[Any]"]


@contextmanager
def crew(processes: int) -> Iterator[Submit]:
    """Yield a function like ``Executor.submit``; with one process it runs each task at once in this one."""
    if processes == 1:
        yield _run_here
        return
    from joblib.externals.loky import get_reusable_executor

    pool = get_reusable_executor(
        max_workers=processes, env=_threads(processes), initializer=end_with_parent, initargs=tie()
    )
    try:
        yield pool.submit
    except BaseException:
        pool.shutdown(wait=False, kill_workers=True)
        raise


def _threads(processes: int) -> dict[str, str]:
    """Return environment variables with each process's share of the threads of numerical libraries."""
    share = str(max(1, (os.cpu_count() or 1) // processes))
    return {name: os.environ.get(name, share) for name in _THREADS}


def _run_here(function: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*arguments, **named))
    return future


def in_order(futures: Sequence[Future[Any]], on_done: Callable[[int], None] | None = None) -> list[Any]:
    """Return the results in order; ``on_done`` receives the number finished so far."""
    for count, _ in enumerate(as_completed(futures), 1):
        if on_done is not None:
            on_done(count)
    return [future.result() for future in futures]
