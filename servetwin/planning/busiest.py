"""The busiest stretch of a workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Busiest:
    """``window_s`` seconds from ``start_s`` on, with ``requests`` arrivals; the mean is of all requests."""

    start_s: float
    window_s: float
    requests: int
    mean_rate_per_s: float

    @property
    def rate_per_s(self) -> float:
        """Rate of arrivals in the window."""
        return self.requests / self.window_s

    def __str__(self) -> str:
        return (
            f"busiest {self.window_s:g} s: {self.rate_per_s:.3g} requests/s from {self.start_s:.0f} s on, "
            f"{self.rate_per_s / self.mean_rate_per_s:.2g} times the mean of {self.mean_rate_per_s:.3g}"
        )


def busiest(arrival_ns: NDArray[np.int64], window_s: float) -> Busiest | None:
    """Find the stretch; None for fewer than two arrivals, or if all are within one window."""
    span_s = float(arrival_ns[-1] - arrival_ns[0]) / NS_PER_S if len(arrival_ns) else 0.0
    if span_s <= window_s:
        return None
    ends = np.searchsorted(arrival_ns, arrival_ns + int(window_s * NS_PER_S), side="left")
    counts = ends - np.arange(len(arrival_ns))
    first = int(counts.argmax())
    mean = (len(arrival_ns) - 1) / span_s
    return Busiest(float(arrival_ns[first]) / NS_PER_S, window_s, int(counts[first]), mean)
