"""Fragmentation: free KV memory that together would hold who waits at the head of a queue.

As in Llumnix (OSDI 2024, sections 3 and 6.3), at the instants of the run's series. A preempted request that
waits counts with its prompt alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.results.series_sink import NO_ENGINE, WAITING
from experiments.results.series_table import arrived_tokens, grid_of, kv_usage, stays_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.results.series_sink import SeriesSink
    from experiments.results.series_table import Grid, Stays

    Floats = NDArray[np.float64]

_NS_PER_S = 1_000_000_000


def fragmentation_section(
    sink: SeriesSink, columns: Mapping[str, NDArray[np.generic]], end_s: float
) -> dict[str, Any]:
    """The ``fragmentation`` part of summary.json, of a run with series."""
    stays = stays_of(sink, columns, round(end_s * _NS_PER_S))
    grid = grid_of(sink, stays, end_s)
    totals = np.array([_blocks(sink, engine) for engine in grid.engines.tolist()])
    heads = _heads(grid, stays, sink)
    return {"fragmentation": shares_of(heads, (1.0 - kv_usage(grid, sink)) * totals, float(totals.sum()))}


def shares_of(heads: Floats, free: Floats, total: float) -> dict[str, Any]:
    """heads, free: [instant, engine] blocks that the head of its queue needs (0: nobody waits), and free.

    ``blocked_share``: of the instants, those at which a head does not fit where it waits. ``fits_share``: of
    these, at which all free memory together would hold the smallest such head. ``mean_share``, ``max_share``:
    of all KV memory, what the smallest such heads that would fit together need.
    """
    blocked = np.where(heads > free, heads, np.inf)
    needed = np.sort(blocked, axis=1).cumsum(axis=1)
    fitting = np.where(needed <= free.sum(axis=1)[:, None], needed, 0.0).max(axis=1, initial=0.0)
    waits, shares = np.isfinite(blocked).any(axis=1), fitting / total
    return {
        "blocked_share": float(waits.mean()),
        "fits_share": float((fitting[waits] > 0).mean()) if waits.any() else None,
        "mean_share": float(shares.mean()),
        "max_share": float(shares.max()),
    }


def _blocks(sink: SeriesSink, engine: int) -> int:
    return 0 if engine == NO_ENGINE else sink.engines[engine].ledger.total_blocks


def _heads(grid: Grid, stays: Stays, sink: SeriesSink) -> Floats:
    """[instant, engine] -> blocks that the longest waiting request there needs; 0 where none waits."""
    found = np.zeros((len(grid.instants_ns), len(grid.engines)))
    prompts = arrived_tokens(sink)
    rows = (stays.state == WAITING) & (stays.engine != NO_ENGINE) & (stays.end_ns > stays.begin_ns)
    first = np.searchsorted(grid.instants_ns, stays.begin_ns[rows])
    last = np.searchsorted(grid.instants_ns, stays.end_ns[rows])
    column = np.searchsorted(grid.engines, stays.engine[rows])
    request, begin = stays.request[rows], stays.begin_ns[rows]
    for row in np.argsort(begin, kind="stable")[::-1].tolist():  # who came first is written last
        block_tokens = sink.engines[int(grid.engines[column[row]])].ledger.block_tokens
        found[first[row] : last[row], column[row]] = -(-prompts[int(request[row])] // block_tokens)
    return found
