"""Fragmentation: free KV memory that would hold the heads of queues if it were on one instance.

As in Llumnix (OSDI 2024, sections 3 and 6.3), at the instants of the run's series.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from servetwin.results.series_sink import HEAD_FIELDS, NO_ENGINE
from servetwin.results.series_table import grid_of, kv_usage, stays_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from servetwin.results.series_sink import SeriesSink
    from servetwin.results.series_table import Grid

    Floats = NDArray[np.float64]

_NS_PER_S = 1_000_000_000


def fragmentation_section(
    sink: SeriesSink, columns: Mapping[str, NDArray[np.generic]], end_s: float
) -> dict[str, Any]:
    """Return the ``fragmentation`` part of summary.json, for a run with series."""
    stays = stays_of(sink, columns, round(end_s * _NS_PER_S))
    grid = grid_of(sink, stays, end_s)
    totals = np.array([_blocks(sink, engine) for engine in grid.engines.tolist()])
    heads = _heads(grid, sink)
    return {"fragmentation": shares_of(heads, (1.0 - kv_usage(grid, sink)) * totals, float(totals.sum()))}


def shares_of(heads: Floats, free: Floats, total: float) -> dict[str, Any]:
    """Return how often requests wait only because free KV memory is spread over instances, and for how much.

    ``heads``, ``free``: [instant, engine] -> blocks that the first request of the engine's queue needs (0 for
    an empty queue), and blocks that are free. A head is blocked if it does not fit in its own instance.

    ``blocked_share``: the share of instants with a blocked head. ``fits_share``: the share of these instants
    at which the smallest blocked head would fit in the free blocks of all instances together. ``mean_share``,
    ``max_share``: the share of all KV memory that blocked heads, the smallest first, would take if they could
    use the free blocks of all instances together; its mean and maximum over the instants.
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


def _heads(grid: Grid, sink: SeriesSink) -> Floats:
    """Return [instant, engine] -> blocks that the head of its queue needs; 0 for an empty queue."""
    largest = np.zeros((len(grid.instants_ns), len(grid.engines)))
    now_ns, engines, blocks = np.frombuffer(sink.heads, dtype=np.int64).reshape(-1, len(HEAD_FIELDS)).T
    for column, engine in enumerate(grid.engines.tolist()):
        mine = engines == engine
        at = np.searchsorted(now_ns[mine], grid.instants_ns, side="right") - 1
        if mine.any():
            largest[:, column] = np.where(at < 0, 0, blocks[mine][np.maximum(at, 0)])
    return largest
