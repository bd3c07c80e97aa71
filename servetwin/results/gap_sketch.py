"""Inter-token gaps of a whole run in a fixed-size histogram: maximum exact, quantiles to 0.2 %.

A run of decode steps adds an arithmetic sequence of gaps. The event loop appends runs to a plain list, its
cheapest operation, and numpy counts a few ten thousand at a time. Buckets have integer edges, so a sequence
falls into the same buckets however the run was divided.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from serving.record.gap_runs import GapRuns
from serving.vocabulary.units import FRACTION_BITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

GROWTH = 1.004
LEAST_NS = 100
GREATEST_NS = 4 * 10**11  # 400 s; longer gaps share the last bucket (and int64 ends at 549 s)
NS_PER_MS = 1e6
_GREATEST_FIXED = GREATEST_NS << FRACTION_BITS
GAPS_BUFFERED = 4 * 50_000  # numbers; four for each run in the buffer


@cache
def _edges() -> np.ndarray:
    """Return the buckets' upper edges in fixed point; values above the last fall into one more bucket."""
    import numpy as np

    edges, edge = [], float(LEAST_NS)
    while edge < GREATEST_NS:
        edges.append(int(edge) << FRACTION_BITS)
        edge = max(edge * GROWTH, edge + 1)
    return np.array([*edges, _GREATEST_FIXED], dtype=np.int64)


class GapSketch:
    """A histogram of gaps."""

    __slots__ = ("_counts", "_largest", "_runs", "add", "buffer")

    def __init__(self) -> None:
        self._runs = GapRuns(_GREATEST_FIXED)
        self.buffer, self.add = self._runs.noted, self._runs.add
        self._counts: np.ndarray | None = None
        self._largest = 0

    def settle(self) -> None:
        """Count the buffer; worth a call when ``buffer`` is longer than GAPS_BUFFERED."""
        self._count()

    def summary_ms(self, quantiles: dict[str, float]) -> dict[str, float | None]:
        """Return the requested quantiles and max; None if there are no gaps."""
        counts = self._count()
        total = int(counts.sum())
        if not total:
            return dict.fromkeys((*quantiles, "max"))
        scale = (1 << FRACTION_BITS) * NS_PER_MS
        ranks = counts.cumsum()
        values: dict[str, float | None] = {}
        for name, share in quantiles.items():
            bucket = int((ranks <= share * (total - 1)).sum())
            values[name] = self._middle(bucket) / scale
        values["max"] = self._largest / scale
        return values

    def mean_ms(self) -> float | None:
        """Return the mean, every gap in the middle of its bucket (to 0.2 %); None without gaps."""
        counts = self._count()
        total = int(counts.sum())
        if not total:
            return None
        used = counts.nonzero()[0].tolist()
        weighted = sum(self._middle(bucket) * int(counts[bucket]) for bucket in used)
        return weighted / total / ((1 << FRACTION_BITS) * NS_PER_MS)

    def _middle(self, bucket: int) -> float:
        """Return the middle of a bucket, never beyond the largest gap."""
        edges = _edges()
        if bucket == len(edges):
            return float(self._largest)
        lower = int(edges[bucket - 1]) if bucket else 0
        return min((lower + int(edges[bucket])) / 2, float(self._largest))

    def _count(self) -> np.ndarray:
        """Count the buffer into the histogram and return the histogram."""
        import numpy as np

        edges = _edges()
        if self._counts is None:
            self._counts = np.zeros(len(edges) + 1, dtype=np.int64)
        if self.buffer:
            first, slope, steps, sequences = self._columns()
            self._largest = max(self._largest, int((first + slope * (steps - 1)).max()))
            self._spread(edges, first, slope, steps, sequences)
            self.buffer.clear()
        self._counts[-1] += self._runs.over
        self._runs.over = 0
        self._largest = max(self._largest, self._runs.largest)
        return self._counts

    def _columns(self) -> Ints:
        """The numbers of the runs in the buffer, each kind in a row."""
        import numpy as np

        return np.fromiter(self.buffer, dtype=np.int64, count=len(self.buffer)).reshape(-1, 4).T

    def _spread(self, edges: Ints, first: Ints, slope: Ints, steps: Ints, sequences: Ints) -> None:
        """Count arithmetic sequences: fill the first bucket of each, continue with unfinished sequences."""
        import numpy as np

        assert self._counts is not None
        bucket = np.searchsorted(edges, first, side="right")
        counted = np.zeros(len(first), dtype=np.int64)
        while len(first):
            edge = edges[np.minimum(bucket, len(edges) - 1)]
            # Steps with first + slope * i < edge; all of them in the last bucket or if gaps do not grow.
            below = np.where(slope > 0, -((first - edge) // np.maximum(slope, 1)), steps)
            below = np.where(bucket == len(edges), steps, np.minimum(steps, below))
            np.add.at(self._counts, bucket, (below - counted) * sequences)
            rest = below < steps
            first, slope, steps, sequences = first[rest], slope[rest], steps[rest], sequences[rest]
            counted, bucket = below[rest], bucket[rest] + 1
