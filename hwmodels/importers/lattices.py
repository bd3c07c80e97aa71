"""Splits measured points into as few product lattices as possible, without holes inside."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hwmodels.importers.tables import Counts
from hwmodels.profiles.profile import Floats, Lattice

Point = tuple[int, ...]


def lattices_of(columns: Sequence[Counts], values: Floats) -> tuple[Lattice, ...]:
    """Lattices that contain every row, the first with the most rows; a row may be in several.

    One lattice if no line of it has a hole between two measured points (a cut corner is no hole). Else the
    table is the union of several grids. They are found by the lines on which slices across an axis were
    measured; the axis that leaves fewest holes is taken. Several values of one point are averaged.
    """
    points, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)  # numpy 2.0 keeps the shape of its input here
    means = np.bincount(inverse, weights=values) / np.bincount(inverse)
    whole = _lattice(points, means)
    if _no_holes(whole):
        return (whole,)
    splits = [
        tuple(_lattice(points[rows], means[rows]) for rows in _split(points, axis))
        for axis in range(points.shape[1])
    ]
    return min(splits, key=_badness)


def _lattice(points: Counts, values: Floats) -> Lattice:
    axes, places = zip(*(np.unique(column, return_inverse=True) for column in points.T))
    grid = np.full([len(axis) for axis in axes], np.nan)
    grid[places] = values
    return Lattice(tuple(tuple(axis.tolist()) for axis in axes), grid)


def _no_holes(lattice: Lattice) -> bool:
    """Whether the measured points of every line, along every axis, are contiguous."""
    measured = ~np.isnan(lattice.values)
    for axis in range(measured.ndim):
        starts = np.diff(measured.astype(np.int8), axis=axis, prepend=0) == 1
        if (starts.sum(axis=axis) > 1).any():
            return False
    return True


def _badness(split: tuple[Lattice, ...]) -> tuple[int, int]:
    """(number of lattices with holes, number of lattices)."""
    return sum(not _no_holes(part) for part in split), len(split)


def _split(points: Counts, axis: int) -> list[npt.NDArray[np.int64]]:
    """Row numbers of each product, greedily: the one with most rows not yet in any comes next.

    A candidate is the grid of one slice across ``axis``, times all slices measured on at least that.
    """
    slices: dict[int, dict[Point, int]] = {}
    for row, point in enumerate(points.tolist()):
        line = point.pop(axis)
        slices.setdefault(line, {})[tuple(point)] = row
    patterns = sorted({frozenset(part) for part in slices.values()}, key=sorted)
    candidates = [_rows_on(pattern, slices) for pattern in patterns]
    open_rows = set(range(len(points)))
    chosen = []
    while open_rows:
        best = max(candidates, key=lambda rows: len(open_rows & rows))
        chosen.append(best)
        open_rows -= best
    return [np.array(sorted(rows)) for rows in chosen]


def _rows_on(pattern: frozenset[Point], slices: dict[int, dict[Point, int]]) -> set[int]:
    return {rows[point] for rows in slices.values() if rows.keys() >= pattern for point in pattern}
