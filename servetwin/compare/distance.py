"""The two-sample Kolmogorov-Smirnov statistic, without its p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def distance(first: Floats, second: Floats) -> float:
    """Return the largest difference, over all x, between the shares of values <= x in the two samples.

    The result is from 0 to 1. Neither sample may be empty or have NaN. The statistic's p-value would need
    independent values, but the latencies of requests in one queue depend on each other. So callers compare
    the distance with that of two runs of the same configuration.
    """
    first, second = np.sort(first), np.sort(second)
    points = np.concatenate([first, second])
    first_shares = np.searchsorted(first, points, side="right") / len(first)
    second_shares = np.searchsorted(second, points, side="right") / len(second)
    return float(np.abs(first_shares - second_shares).max())


def resampled_distances(first: Floats, second: Floats, times: NDArray[np.int64]) -> Floats:
    """Return the distance in every resample; ``times``: [resample, request], how often each request is in it.

    Both samples have the same requests.
    """
    count = len(first)
    values = np.concatenate([first, second])
    order = np.argsort(values, kind="stable")
    sign = np.where(order < count, 1, -1)
    gaps = (times[:, order % count] * sign).cumsum(axis=1)
    last = np.append(values[order][1:] != values[order][:-1], True)  # of equal values
    return np.asarray(np.abs(gaps[:, last]).max(axis=1) / times.sum(axis=1), dtype=np.float64)
