"""Makes lattices of measured points: as few as possible, without holes inside; and those of expert times."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.gpus.gpu import Gpu
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


# A least-recently-used cache keeps a part of data a little larger than itself: up to twice its size, times
# bend away from the line of reading from memory. (In the moe.csv and moe_perf tables of the RTX PRO 6000,
# whose cache has 134 MB, 8 experts of 9.4 MB take 25 us less than that line, 32 of 4.7 MB 16 us less.)
CACHE_FACTOR: Final = 2.0


def balanced_lattice(tokens: Floats, seconds: Floats, per_token: int, count: int, ranks: int) -> Lattice:
    """The lattice from a curve over tokens whose choices were spread evenly over all ``count`` experts.

    Up to count / per_token tokens each token activates ``per_token`` more experts: the time of reading that
    many. Beyond, all are activated, and the growth of the time is the work of the tokens. With fewer
    activated experts than balanced choices have, the time is that of reading them plus that work.
    """
    full = count / per_token
    reading = tokens <= full
    experts = per_token * tokens[reading] / ranks
    whole_s = float(np.interp(full, tokens, seconds))
    work_s = np.maximum.accumulate(np.where(reading, 0.0, seconds - whole_s).clip(min=0.0))
    values = seconds[reading][None, :] + work_s[:, None]
    values[per_token * tokens[:, None] < experts[None, :] * ranks - 1e-9] = np.nan
    usable = (experts >= 1.0) & (experts == np.floor(experts))
    values = values[:, usable]
    some = ~np.isnan(values).all(axis=1)  # fewer tokens than give every rank an expert are not usable
    axes = (tuple(int(count) for count in tokens[some]), tuple(int(count) for count in experts[usable]))
    return Lattice(axes, values[some])


def from_memory(lattice: Lattice, expert_bytes: float, gpu: Gpu) -> tuple[Lattice, tuple[str, ...]]:
    """Times of reading few experts from memory, not from the cache that repeated measurements hit.

    A step reads all layers, so no layer finds its experts in the cache. Numbers of experts whose weights the
    cache may hold get the value of the line through the next two larger numbers, at least the measured one.
    If there are no two larger ones they stay, with a note.
    """
    if gpu.l2_cache_bytes is None:
        return lattice, ()
    experts = np.array(lattice.axes[1], dtype=np.float64)
    held = experts * expert_bytes <= CACHE_FACTOR * gpu.l2_cache_bytes
    cached = int(held.sum())
    if not cached:
        return lattice, ()
    small = ", ".join(str(count) for count in lattice.axes[1][:cached])
    size = f"{gpu.l2_cache_bytes / 1e6:.0f} MB of cache"
    if cached > len(experts) - 2:
        return lattice, (f"experts: times of {small} activated experts may be of weights in the {size}",)
    values = lattice.values.copy()
    first, second = cached, cached + 1
    slope = (values[:, second] - values[:, first]) / (experts[second] - experts[first])
    known = np.flatnonzero(~np.isnan(slope))
    slope[: known[0]] = slope[known[0]]
    start = values[:, first].copy()
    start[: known[0]] = np.where(np.isnan(start[: known[0]]), values[known[0], first], start[: known[0]])
    for column in range(cached):
        line = start - slope * (experts[first] - experts[column])
        values[:, column] = np.fmax(values[:, column], np.where(np.isnan(values[:, column]), np.nan, line))
    note = f"experts: {small} activated ones were measured in the {size} or partly: the line of more goes on"
    return Lattice(lattice.axes, values), (note,)
