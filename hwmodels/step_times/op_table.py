"""Interpolates measured points: staircases over one count, and attention over two or four counts.

Attention times span four decades, so the interpolated value is their ratio to a physical form: a sum of work
terms with non-negative coefficients, fitted to the same points on relative error. Ratios stay near 1 and
change slowly; they are interpolated linearly over log(count + 16).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Floats, Lattice, OpTables
from hwmodels.step_times.fit import non_negative

# Rows in a tile of a matrix product: the time jumps right after a multiple of it, and hardly changes in
# between (llmservingsim layer tables of RTX 4090 and RTX PRO 6000; up to 64 rows tiles are of 16).
TILE_TOKENS: Final = 64
SMALL_TILE_TOKENS: Final = 16
# Coordinates are log(count + 16): 16 is the first measured line of those tables, and 0 needs a finite value.
LOG_OFFSET: Final = 16.0
# A chunk of fewer queries leaves part of a GPU idle and takes as long (same tables, both GPUs).
FULL_GPU_TOKENS: Final = 256.0

Form = Callable[..., Sequence[Floats]]


def decode_form(sequences: Floats, context: Floats) -> Sequence[Floats]:
    """Work terms of decode attention: launch, sequences, the longest chain, reading all contexts."""
    return (np.ones(1), sequences, context, sequences * context)


def prefill_form(new: Floats, cached: Floats) -> Sequence[Floats]:
    """Work terms of one chunk: its own square, and every query against the cache."""
    filled = np.maximum(new, FULL_GPU_TOKENS)
    return (np.ones(1), new, new * new, cached, filled * cached, filled * new)


def mixed_form(new: Floats, cached: Floats, sequences: Floats, context: Floats) -> Sequence[Floats]:
    """Work terms of a chunk and decoding sequences in one kernel; the longest term determines its end."""
    both = (np.ones(1), new, new * new, new * cached, cached, sequences, sequences * context, context)
    return (*both, np.maximum(cached, context))


@dataclass(frozen=True, slots=True)
class Surface:
    """Seconds over the axes of lattices: terms of ``form`` by ``weights``, times exp(``log_ratios``)."""

    form: Form
    weights: Floats
    lattices: tuple[Lattice, ...]
    log_ratios: tuple[Floats, ...]

    @property
    def first_lines(self) -> tuple[int, ...]:
        """The smallest measured value of each axis."""
        return tuple(min(axis) for axis in self._axes())

    @property
    def last_lines(self) -> tuple[int, ...]:
        """The largest measured value of each axis."""
        return tuple(max(axis) for axis in self._axes())

    def lines(self, axis: int) -> list[int]:
        """All measured values of one axis, ascending."""
        return sorted(self._axes()[axis])

    def on(self, *lines: Sequence[int]) -> Floats:
        """Seconds at the product of ``lines``; NaN if a measured neighbour is missing.

        On two axes the farther neighbour may be missing, up to the line between the two beside it. Below the
        first line of an axis its values are used. If several lattices answer, the one with nearer points
        counts more; at a measured point only that point counts.
        """
        points = [
            np.maximum(np.asarray(at, dtype=np.float64), low) for at, low in zip(lines, self.first_lines)
        ]
        ratios = [_interpolated(lattice.axes, values, points) for lattice, values in self._pairs()]
        blended = ratios[0][0] if len(ratios) == 1 else _blended(ratios)
        return _form_s(self.form, self.weights, points) * np.exp(blended)

    def formed(self, *lines: Sequence[int]) -> Floats:
        """The fitted form alone at the product of ``lines``; seconds."""
        seconds = _form_s(self.form, self.weights, [np.asarray(at, dtype=np.float64) for at in lines])
        return np.broadcast_to(seconds, [len(at) for at in lines])

    def _axes(self) -> list[set[int]]:
        return [set().union(*lines) for lines in zip(*(lattice.axes for lattice in self.lattices))]

    def _pairs(self) -> list[tuple[Lattice, Floats]]:
        return list(zip(self.lattices, self.log_ratios))


def fitted(form: Form, lattices: Sequence[Lattice], name: str) -> Surface:
    """The surface through all points of ``lattices``; ``name`` is used in errors."""
    designs, seconds = [], []
    for lattice in lattices:
        known = ~np.isnan(lattice.values)
        if not (lattice.values[known] > 0.0).all():
            raise HardwareError(
                f"a {name} time of the profile is not above 0; remove that row from its table"
            )
        terms = np.stack(
            [np.broadcast_to(term, known.shape)[known] for term in form(*_grid(lattice.axes))], 1
        )
        designs.append(terms)
        seconds.append(lattice.values[known])
    target = np.concatenate(seconds) if seconds else np.empty(0)
    if not target.size:
        raise HardwareError(f"the profile has no {name} times; import a table that has some")
    weights = non_negative(np.concatenate(designs) / target[:, None], np.ones(len(target)))
    ratios = tuple(np.log(member.values / _form_s(form, weights, member.axes)) for member in lattices)
    return Surface(form, weights, tuple(lattices), ratios)


def seconds_by_count(curve: Curve) -> Floats:
    """Seconds at every count from 0 (0 seconds, never used) to the curve's end.

    Linear inside a tile; if a tile has points on one side of a count only, the nearest of them.
    """
    counts, seconds = np.asarray(curve.counts), np.asarray(curve.seconds, dtype=np.float64)
    every = np.arange(1, counts[-1] + 1)
    above = np.searchsorted(counts, every)
    below = np.maximum(np.where(counts[above] == every, above, above - 1), 0)
    gap = np.maximum(counts[above] - counts[below], 1)
    share = np.clip((every - counts[below]) / gap, 0.0, 1.0)
    own_below, own_above = (_tile(counts[side]) == _tile(every) for side in (below, above))
    share = np.where(own_below & ~own_above, 0.0, np.where(own_above & ~own_below, 1.0, share))
    return np.concatenate(([0.0], seconds[below] + share * (seconds[above] - seconds[below])))


def dense_by_tokens(tables: OpTables) -> Floats:
    """Seconds of dense layers and all-reduces at every token count, to the end of the shorter table."""
    dense = seconds_by_count(tables.dense)
    reduce = tables.all_reduce
    if reduce is None:
        return dense
    dense = dense[: reduce.counts[-1] + 1]
    return dense + np.interp(np.arange(len(dense)), reduce.counts, reduce.seconds)


def refined(lines: Sequence[int], ratio: float) -> list[int]:
    """``lines`` and geometric steps between them, so that neighbours differ at most by about ``ratio``."""
    counts = set(lines)
    for low, high in pairwise(lines):
        span = (high + LOG_OFFSET) / (low + LOG_OFFSET)
        parts = int(np.ceil(np.log(span) / np.log(ratio) - 1e-9))
        inner = (low + LOG_OFFSET) * span ** (np.arange(1, parts) / max(parts, 1)) - LOG_OFFSET
        counts.update(int(value) for value in np.rint(inner))
    return sorted(counts)


def rising(values: Floats, axis: int) -> Floats:
    """Make ``values`` non-decreasing along ``axis``; NaN stays NaN.

    The result is midway between the lowest such curve above and the highest below. Measured times dip by
    noise; a longer context never takes less.
    """
    above = np.fmax.accumulate(values, axis=axis)
    below = np.flip(np.fmin.accumulate(np.flip(values, axis), axis=axis), axis)
    return np.where(np.isnan(values), np.nan, (above + below) / 2.0)


def segments(lines: Sequence[int]) -> list[int]:
    """For every value from 0 to the last line the segment that holds it; a line ends the segment below it."""
    places: list[int] = np.maximum(np.searchsorted(lines, np.arange(lines[-1] + 1)) - 1, 0).tolist()
    return places


def _tile(counts: Floats) -> Floats:
    small = (counts - 1) // SMALL_TILE_TOKENS - TILE_TOKENS
    return np.where(counts <= TILE_TOKENS, small, (counts - 1) // TILE_TOKENS)


def _grid(points: Sequence[Sequence[int]] | Sequence[Floats]) -> tuple[Floats, ...]:
    return np.ix_(*(np.asarray(at, dtype=np.float64) for at in points))


def _form_s(form: Form, weights: Floats, points: Sequence[Sequence[int]] | Sequence[Floats]) -> Floats:
    terms = form(*_grid(points))
    return sum((weight * term for weight, term in zip(weights, terms) if weight > 0.0), np.zeros(1))


def _interpolated(
    axes: Sequence[Sequence[int]], values: Floats, points: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Multilinear values at the product of ``points``, and the distance of each from measured points."""
    missing = np.isnan(values).astype(np.float64)
    holes = missing if missing.any() else None
    table = np.nan_to_num(values if holes is None else _with_far_corners(values))
    distance, inside = np.zeros(()), np.ones((), dtype=bool)
    weights = [_axis_weights(np.asarray(lines, dtype=np.float64), at) for lines, at in zip(axes, points)]
    for axis, (matrix, bow, known) in enumerate(weights):
        table = _along(matrix, table, axis)
        holes = None if holes is None else _along(matrix, holes, axis)
        distance = np.add.outer(distance, bow)
        inside = np.logical_and.outer(inside, known)
    if holes is not None:
        whole: npt.NDArray[np.bool_] = holes < 1e-12
        inside = inside & (whole | _in_corners(values, [matrix for matrix, _, _ in weights]))
    return np.where(inside, table, np.nan), distance


def _with_far_corners(values: Floats) -> Floats:
    """Give a missing far corner of a two-axis cell the value of the plane through the other three."""
    if values.ndim != 2:
        return values
    filled = values.copy()
    plane = values[1:, :-1] + values[:-1, 1:] - values[:-1, :-1]
    filled[1:, 1:] = np.where(np.isnan(values[1:, 1:]), plane, values[1:, 1:])
    return filled


def _in_corners(values: Floats, matrices: Sequence[Floats]) -> npt.NDArray[np.bool_]:
    """Which points lie inside the three measured corners of a two-axis cell without its far corner.

    Memory bounds sequences times context, so a table ends in steps; between the steps its edge is the line
    from corner to corner.
    """
    if values.ndim != 2:
        return np.zeros((), dtype=np.bool_)
    plane = values[1:, :-1] + values[:-1, 1:] - values[:-1, :-1]
    half = np.zeros(values.shape, dtype=bool)
    half[:-1, :-1] = np.isnan(values[1:, 1:]) & ~np.isnan(plane)
    (near, share), (near_other, share_other) = (_cell(matrix) for matrix in matrices)
    before_the_edge: npt.NDArray[np.bool_] = np.add.outer(share, share_other) < 1.0 + 1e-9
    return before_the_edge & half[np.ix_(near, near_other)]


def _cell(matrix: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """The line before each point of one axis, and the fraction of the way to the next."""
    near = (matrix > 0.0).argmax(axis=1)
    return near, 1.0 - matrix[np.arange(len(matrix)), near]


def _axis_weights(lines: Floats, at: Floats) -> tuple[Floats, Floats, Floats]:
    """Matrix from lines to points, h^2 w (1 - w) (possible error of a line), and which points are inside."""
    place, measured = np.log(at + LOG_OFFSET), np.log(lines + LOG_OFFSET)
    low = np.clip(np.searchsorted(lines, at) - 1, 0, max(len(lines) - 2, 0))
    high = np.minimum(low + 1, len(lines) - 1)
    gap = np.where(high > low, measured[high] - measured[low], 1.0)
    share = np.clip((place - measured[low]) / gap, 0.0, 1.0)
    matrix = np.zeros((len(at), len(lines)))
    rows = np.arange(len(at))
    matrix[rows, low] += 1.0 - share
    matrix[rows, high] += share
    return matrix, gap * gap * share * (1.0 - share), (at >= lines[0]) & (at <= lines[-1])


def _along(matrix: Floats, values: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)


def _blended(answers: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Mean of the answers that exist, weighted by 1 / distance^2."""
    total, weight = np.zeros(1), np.zeros(1)
    for values, distance in answers:
        known = ~np.isnan(values)
        share = np.where(known, 1.0 / (distance + 1e-9) ** 2, 0.0)
        total = total + share * np.where(known, values, 0.0)
        weight = weight + share
    return np.where(weight > 0.0, total / np.where(weight > 0.0, weight, 1.0), np.nan)
