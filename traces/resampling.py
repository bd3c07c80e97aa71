"""Sampling error of a recorded trace: its requests drawn again in blocks (moving-block bootstrap).

H. R. Künsch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 17
(1989). A row is a request with the gap before it, so a block keeps gaps, lengths and their order. Blocks have
about n^(1/3) rows: the order that P. Hall, J. L. Horowitz and B.-Y. Jing, On blocking rules for the bootstrap
with dependent data, Biometrika 82 (1995), find best for the variance of a mean.
"""

from __future__ import annotations  # numpy.random is loaded only where something is drawn

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.errors import TraceError
from traces.scaling import apart, unshared
from traces.streams import stream
from traces.workload import COLUMNS, LONGEST_NS, MAX_ROWS, Workload, taken

# Our choice: a load that doubles lasts long enough in an eighth of the trace to be a stage of it.
_SECTIONS: Final = 8
_STRONGLY: Final = 2.0
_ERRORS: Final = 4.0  # standard errors of a difference of two counts, beyond which it is not chance


def block_rows(requests: int) -> int:
    """Rows of a block where nobody says how many."""
    cube_root: float = requests ** (1 / 3)
    return max(1, round(cube_root))


def resampled(workload: Workload, seed: int, rows_per_block: int | None = None) -> Workload:
    """As many requests, in blocks of consecutive ones that ``seed`` draws, one behind the other.

    A block may begin at any row that leaves it whole. Each request comes with the gap before it (the first
    of the trace with the mean gap, for it has none), so arrivals keep their distances within a block. Every
    column follows its row. A request drawn again says something else than the first time: n-th copies share
    prefixes with n-th copies alone, and its conversation is another one, else a block drawn twice would find
    all of itself in the cache. Raises TraceError.
    """
    count = len(workload)
    if count < 2:
        raise TraceError(
            f"{workload.name} has only one request, so it cannot be resampled: leave trace.resample out"
        )
    size = block_rows(count) if rows_per_block is None else rows_per_block
    size = whole_number("trace.block_requests", size, 1, MAX_ROWS)
    if size > count // 2:
        raise TraceError(
            f"trace.block_requests={size} is more than half of the {count} requests of {workload.name}, so "
            f"that every resampled trace would be nearly the same: write at most {count // 2}"
        )
    rows = _drawn_rows(count, size, seed)
    columns = {column: taken(getattr(workload, column), rows) for column in COLUMNS}
    copy = _earlier_draws(rows)
    columns |= {
        "arrival_ns": _arrivals(workload.arrival_ns, rows),
        "prefix": unshared(columns["prefix"], copy),
        "session": apart(columns["session"], copy),
    }
    label = f"requests drawn again in blocks of {size} (moving-block bootstrap, seed {seed})"
    warning = stages_warning(workload)
    return (workload.labelled(warning) if warning else workload).labelled(label, **columns)


def stages_warning(workload: Workload) -> str:
    """A sentence if the trace has stages of very different load, whose order drawing again loses; else "".

    Compares the counts of eighths of its time: strongly and more than by chance (both counts as Poisson's).
    """
    arrival_ns = workload.arrival_ns
    counts = np.histogram(arrival_ns, bins=_SECTIONS)[0]
    least, most = int(counts.min()), int(counts.max())
    if most < _STRONGLY * least or most - least < _ERRORS * (most + least) ** 0.5:
        return ""
    return (
        f"an eighth of the trace's time has {most} requests and another {least}, and drawing again shuffles "
        "such stages: for an answer about this trace leave trace.resample out and pair runs of the trace "
        "itself with servetwin compare"
    )


def _drawn_rows(count: int, size: int, seed: int) -> NDArray[np.int64]:
    """The rows of as many blocks as are needed, the last one cut."""
    blocks = -(-count // size)
    starts = stream(seed, "resample/blocks").integers(0, count - size + 1, blocks)
    return np.asarray((starts[:, None] + np.arange(size)).reshape(-1)[:count], dtype=np.int64)


def _arrivals(arrival_ns: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gaps of the rows drawn, added up from the first arrival of the trace."""
    gaps = np.diff(arrival_ns, prepend=0)
    gaps[0] = round(int(arrival_ns[-1] - arrival_ns[0]) / (len(arrival_ns) - 1))
    drawn = gaps[rows]
    drawn[0] = arrival_ns[0]
    if float(drawn.astype(np.float64).sum()) > LONGEST_NS:
        raise TraceError("the trace drawn by trace.resample lasts longer than 31 years: write another seed")
    return np.cumsum(drawn)


def _earlier_draws(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each row was drawn before."""
    order = np.argsort(rows, kind="stable")
    first = np.searchsorted(rows[order], rows[order])
    earlier = np.empty_like(rows)
    earlier[order] = np.arange(len(rows)) - first
    return earlier
