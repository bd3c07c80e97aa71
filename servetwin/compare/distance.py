"""The Kolmogorov-Smirnov distance of two samples of one quantity, without its p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def distance(first: Floats, second: Floats) -> float:
    """Return the largest difference between the shares of both that are at most x, over all x: 0 to 1.

    Values must be numbers, at least one on each side. Requests that queue together are late together, so the
    distance implies no probability; it is compared with the distance of two runs of the same thing.
    """
    first, second = np.sort(first), np.sort(second)
    points = np.concatenate([first, second])
    below = np.searchsorted(first, points, side="right") / len(first)
    other = np.searchsorted(second, points, side="right") / len(second)
    return float(np.abs(below - other).max())
