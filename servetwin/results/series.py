"""Reads the requests of a run and reduces them to a few hundred points for plots; times in seconds."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[np.generic]]

_NS_PER_S = 1e9
_BINS = 240
_GROUPS = 64
# Up to this number each request is one point; above, percentiles of time bins are clearer than points.
MOST_POINTS = 1500


class Requests:
    """Finished requests that have both token times: times in seconds, latencies in ms (TPOT may be NaN).

    Each column is computed when it is asked for: a run may have ten million rows.
    """

    __slots__ = ("_columns", "_count", "_rows")

    def __init__(self, columns: Columns) -> None:
        """``columns``: those of requests.parquet, of equal length, times in ns."""
        finish: NDArray[np.int64] = np.asarray(columns["finish_ns"], dtype=np.int64)
        first: NDArray[np.int64] = np.asarray(columns["first_token_ns"], dtype=np.int64)
        rows = (first >= 0) & (finish >= first)
        self._rows = slice(None) if rows.all() else rows
        self._columns = columns
        self._count = int(rows.sum())

    def _seconds(self, name: str) -> Floats:
        return self._floats(name) / _NS_PER_S

    def _floats(self, name: str) -> Floats:
        values: Floats = np.asarray(self._columns[name], dtype=np.float64)[self._rows]
        return values

    @property
    def arrival_s(self) -> Floats:
        """When each was sent."""
        return self._seconds("arrival_ns")

    @property
    def first_token_s(self) -> Floats:
        """When each had its first token."""
        return self._seconds("first_token_ns")

    @property
    def finish_s(self) -> Floats:
        """When each had its last token."""
        return self._seconds("finish_ns")

    @property
    def replica(self) -> NDArray[np.int64]:
        """The replica at which each finished."""
        return np.asarray(self._columns["replica"], dtype=np.int64)[self._rows]

    @property
    def ttft_ms(self) -> Floats:
        """Times to the first token."""
        return self._floats("ttft_ms")

    @property
    def tpot_ms(self) -> Floats:
        """Times per output token; NaN for one token."""
        return self._floats("tpot_ms")

    @property
    def e2e_ms(self) -> Floats:
        """Times to the last token."""
        return self._floats("e2e_ms")

    def __len__(self) -> int:
        return self._count

    @property
    def end_s(self) -> float:
        """When the last request finished; 0 without requests."""
        return float(self.finish_s.max()) if len(self) else 0.0


def requests_in(folder: Path) -> Requests:
    """Return the finished requests of a result folder."""
    from servetwin.results.parquet_file import frame_of

    frame = frame_of(folder / "requests.parquet")
    return Requests({name: frame[name].to_numpy() for name in frame})


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """Return (value, share of requests at or below it), dense in the tail; empty if no value is finite."""
    ordered = values[np.isfinite(values)]
    ordered.sort()  # in place: a run may have ten million requests
    if not len(ordered):
        return ordered, ordered
    shares = np.concatenate([np.linspace(0, 0.98, 197), np.linspace(0.981, 1, 100)])
    ranks = np.unique(np.ceil(shares * len(ordered)).astype(np.int64).clip(1, len(ordered)))
    return ordered[ranks - 1], ranks / len(ordered)


def binned_percentiles(times_s: Floats, values: Floats, percents: list[float]) -> tuple[Floats, list[Floats]]:
    """Return bin centres, and for each percentile its value per time bin (NaN in bins without values)."""
    if (known := np.isfinite(values)).all():
        values = values.copy()
    else:
        times_s, values = times_s[known], values[known]
    if not len(times_s):
        return np.empty(0), [np.empty(0) for _ in percents]
    bins = int(min(_BINS, max(1, len(times_s) // 50)))
    low, high = float(times_s.min()), float(times_s.max())
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    if (times_s[1:] >= times_s[:-1]).all():
        ends = np.append(np.searchsorted(times_s, edges[1:-1]), len(times_s))
        ordered, counts = values, np.diff(ends, prepend=0)  # a copy, sorted in place
        for end, count in zip(ends, counts):
            ordered[end - count : end].sort()
    else:
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
    """Return (bin start, most requests at once in that bin) of intervals [start, end), over [0, end_s].

    Sorts both arrays, which are the caller's to give away: copies of ten million requests are not small.
    """
    if not (lasting := ends_s > starts_s).all():
        starts_s, ends_s = starts_s[lasting], ends_s[lasting]
    edges = np.linspace(0.0, end_s, _BINS + 1)
    starts_s.sort()
    ends_s.sort()
    begun, ended = np.searchsorted(starts_s, edges), np.searchsorted(ends_s, edges)
    begun[-1], ended[-1] = len(starts_s), len(ends_s)
    most = [
        _most_in_bin(
            float(edges[i]),
            int(begun[i] - ended[i]),
            starts_s[begun[i] : begun[i + 1]],
            ends_s[ended[i] : ended[i + 1]],
        )
        for i in range(_BINS)
    ]
    return edges[:-1], np.array(most, dtype=np.float64)


def _most_in_bin(edge_s: float, before: int, starts_s: Floats, ends_s: Floats) -> int:
    """Return the most at once from ``edge_s`` on, given those there before; changes of an instant are one."""
    if not len(starts_s) and not len(ends_s):
        return before
    times = np.concatenate([ends_s, starts_s])
    change = np.ones(len(times), dtype=np.int32)
    change[: len(ends_s)] = -1
    order = np.argsort(times)
    times, inside = times[order], before + np.cumsum(change[order])
    settled = np.append(times[1:] != times[:-1], True)
    most = int(inside[settled].max())
    return most if times[0] == edge_s else max(most, before)


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
