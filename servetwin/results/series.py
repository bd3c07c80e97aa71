"""Reduces a run's request columns to a few hundred points for plots; times in seconds from the start."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[np.generic]]

_NS_PER_S = 1e9
_BINS = 240
_GROUPS = 64
# Up to this number each request is one point; above, percentiles of time bins are clearer than points.
MOST_POINTS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Finished requests; all arrays of equal length, times in seconds, latencies in ms (TPOT may be NaN)."""

    arrival_s: Floats
    first_token_s: Floats
    finish_s: Floats
    replica: NDArray[np.int64]
    ttft_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats

    @classmethod
    def of(cls, columns: Columns) -> "Requests":
        """Select the rows of ``columns`` (times in ns) that have both token times."""
        finish = np.asarray(columns["finish_ns"], dtype=np.int64)
        first = np.asarray(columns["first_token_ns"], dtype=np.int64)
        rows = (first >= 0) & (finish >= first)

        def floats(name: str, scale: float = 1.0) -> Floats:
            values: Floats = np.asarray(columns[name], dtype=np.float64)[rows] / scale
            return values

        return cls(
            arrival_s=floats("arrival_ns", _NS_PER_S),
            first_token_s=floats("first_token_ns", _NS_PER_S),
            finish_s=floats("finish_ns", _NS_PER_S),
            replica=np.asarray(columns["replica"], dtype=np.int64)[rows],
            ttft_ms=floats("ttft_ms"),
            tpot_ms=floats("tpot_ms"),
            e2e_ms=floats("e2e_ms"),
        )

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def end_s(self) -> float:
        """When the last request finished; 0 without requests."""
        return float(self.finish_s.max()) if len(self) else 0.0


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """Return (value, share of requests at or below it), dense in the tail; empty if no value is finite."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return ordered, ordered
    shares = np.concatenate([np.linspace(0, 0.98, 197), np.linspace(0.981, 1, 100)])
    ranks = np.unique(np.ceil(shares * len(ordered)).astype(np.int64).clip(1, len(ordered)))
    return ordered[ranks - 1], ranks / len(ordered)


def binned_percentiles(times_s: Floats, values: Floats, percents: list[float]) -> tuple[Floats, list[Floats]]:
    """Return bin centres, and for each percentile its value per time bin (NaN in bins without values)."""
    known = np.isfinite(values)
    times_s, values = times_s[known], values[known]
    if not len(times_s):
        return np.empty(0), [np.empty(0) for _ in percents]
    bins = int(min(_BINS, max(1, len(times_s) // 50)))
    low, high = float(times_s.min()), float(times_s.max())
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    slot = np.clip(np.searchsorted(edges, times_s, side="right") - 1, 0, bins - 1)
    ordered, counts = values[np.lexsort((values, slot))], np.bincount(slot, minlength=bins)
    return (edges[:-1] + edges[1:]) / 2, [_percentile(ordered, counts, percent) for percent in percents]


def _percentile(ordered: Floats, counts: NDArray[np.int64], percent: float) -> Floats:
    """Return ``np.percentile`` of each of the consecutive, sorted groups; NaN for empty groups.

    Computed in one call: one for each of hundreds of bins took longer than the rest of the report.
    """
    last, first = counts - 1, np.cumsum(counts) - counts
    rank = np.maximum(last, 0) * (percent / 100)
    low = np.floor(rank).astype(np.int64)
    share, top = rank - low, len(ordered) - 1
    below = ordered[np.minimum(first + low, top)]
    above = ordered[np.minimum(first + np.minimum(low + 1, np.maximum(last, 0)), top)]
    between = np.where(share < 0.5, below + (above - below) * share, above - (above - below) * (1 - share))
    return np.where(counts > 0, between, np.nan)


def level(starts_s: Floats, ends_s: Floats, end_s: float) -> tuple[Floats, Floats]:
    """Return (bin start, most requests at once in that bin) of intervals [start, end), over [0, end_s]."""
    lasting = ends_s > starts_s
    starts_s, ends_s = starts_s[lasting], ends_s[lasting]
    edges = np.linspace(0.0, end_s, _BINS + 1)
    if not len(starts_s):
        return edges[:-1], np.zeros(_BINS)
    times = np.concatenate([ends_s, starts_s])
    change = np.concatenate([np.full(len(ends_s), -1), np.full(len(starts_s), 1)])
    order = np.argsort(times)
    times, inside = times[order], np.cumsum(change[order])
    settled = np.append(times[1:] != times[:-1], True)  # use the level after all changes of an instant
    times, inside = times[settled], inside[settled]
    first = np.searchsorted(times, edges, side="left")
    first[-1] = len(times)
    at_edge = np.searchsorted(times, edges[:-1], side="right")
    most = np.where(at_edge > 0, inside[np.maximum(at_edge - 1, 0)], 0).astype(np.float64)
    filled = np.flatnonzero(first[1:] > first[:-1])
    if len(filled):
        most[filled] = np.maximum(most[filled], np.maximum.reduceat(inside, first[:-1][filled]))
    return edges[:-1], most


def rate(times_s: Floats, end_s: float) -> tuple[Floats, Floats]:
    """Return (bin start, events per second in the bin) over [0, end_s]."""
    bins = int(min(_BINS, max(10, len(times_s) // 20)))
    counts, edges = np.histogram(times_s, bins=bins, range=(0.0, end_s if end_s > 0 else 1.0))
    return edges[:-1], counts / (edges[1] - edges[0])


def per_replica(values: Floats) -> tuple[list[str], Floats]:
    """Return labels and values per replica id; above 64 replicas, means of groups of adjacent ids."""
    if len(values) <= _GROUPS:
        return [str(replica) for replica in range(len(values))], values
    parts = np.array_split(np.arange(len(values)), _GROUPS)
    labels = [f"{part[0]}-{part[-1]}" for part in parts]
    return labels, np.array([values[part].mean() for part in parts])
