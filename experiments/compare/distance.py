"""How far two samples of one quantity are apart: the Kolmogorov-Smirnov distance, without its p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def distance(first: Floats, second: Floats) -> float:
    """The largest difference between the shares of both that are at most x, over all x: 0 to 1.

    Values must be numbers, at least one on each side. Requests that queue together are late together, so no
    probability follows from it; it is held against what two runs of the same thing differ by.
    """
    first, second = np.sort(first), np.sort(second)
    points = np.concatenate([first, second])
    below = np.searchsorted(first, points, side="right") / len(first)
    other = np.searchsorted(second, points, side="right") / len(second)
    return float(np.abs(below - other).max())
