"""Measured times that fall although work grows: single bad points are found, removed and noted."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, ExpertTable, Floats, Lattice, Profile

# A fall by less than this share is noise, which lines through the points smooth out.
FALL: Final = 0.10
# Libraries choose another kernel for another number of rows, and the next kernel may be this much faster.
PRODUCT_FALL: Final = 0.20
# With more bad points than this share of a table, the table as a whole is wrong.
MOST_BAD: Final = 0.2
# Counts start at 0 on some axes; as in hwmodels.step_times.op_table.
_LOG_OFFSET: Final = 16.0
# Beside many decoding sequences a chunk is a small part of the work, and falls over its tokens are noise that
# surfaces smooth out. So mixed steps are checked only over sequences and their context.
_GROWING_AXES: Final = {"decode": (0, 1), "prefill": (0, 1), "mixed": (2, 3)}
# On a line of fewer points it is undecidable which of two neighbours is bad.
_FEWEST: Final = 4


def bad_points(counts: Floats, seconds: Floats, fall: float = FALL) -> npt.NDArray[np.intp]:
    """Positions of the fewest points without which ``seconds`` never falls by more than ``fall`` to the next.

    If several choices remove as many points, those nearest to one line in logarithms stay.
    """
    points = len(counts)
    if points < _FEWEST or not (seconds[1:] < (1.0 - fall) * seconds[:-1]).any():
        return np.empty(0, dtype=np.intp)
    places, logs = np.log(counts + _LOG_OFFSET).tolist(), np.log(seconds).tolist()
    # For each point the best way to keep it as the last one: (points left out, bends, previous kept point).
    best: list[tuple[int, float, int]] = []
    for at in range(points):
        ways = [(at, 0.0, -1)]
        for before in range(at):
            if logs[at] >= logs[before] + math.log(1.0 - fall):
                out, bend, _ = best[before]
                rise = logs[at] - logs[before]
                ways.append(
                    (out + at - before - 1, bend + rise * rise / (places[at] - places[before]), before)
                )
        best.append(min(ways))
    last = min(range(points), key=lambda at: (best[at][0] + points - 1 - at, best[at][1], at))
    notes = []
    while last >= 0:
        notes.append(last)
        last = best[last][2]
    return np.setdiff1d(np.arange(points), notes)


def require_few(bad: int, points: int, name: str, fall: float = FALL) -> None:
    """Refuse a table with more than ``MOST_BAD`` bad points."""
    if bad > max(1.0, MOST_BAD * points):
        raise HardwareError(
            f"{name} is too noisy: {bad} of its {points} times are over {fall:.0%} shorter than those "
            "of less work; measure it again"
        )


def steadied(profile: Profile) -> Profile:
    """The profile without bad points, and a note for each table that had some.

    Bad points of curves over one count are removed. Lattices may have no holes, so there the line (in
    logarithms) between the neighbours replaces them. HardwareError names a table with too many.
    """
    tables, notes = profile.tables, []
    dense, dense_notes = _without(tables.dense, "dense", "tokens")
    head, head_notes = _without(tables.head, "head", "sequences")
    notes += [*dense_notes, *head_notes]
    smooth: dict[str, tuple[Lattice, ...]] = {}
    for kind, axes in _GROWING_AXES.items():
        done = [_bridged(lattice, axes) for lattice in getattr(tables, kind)]
        smooth[kind] = tuple(lattice for lattice, _ in done)
        bad = sum(count for _, count in done)
        points = sum(int((~np.isnan(lattice.values)).sum()) for lattice in getattr(tables, kind))
        require_few(bad, points, f"the table of {kind} attention")
        if bad:
            notes.append(
                f"{kind} attention: {bad} of {points} times are bad, more work takes over {FALL:.0%} less: "
                "their neighbours' line stands in"
            )
    experts, expert_notes = _steady_experts(tables.experts)
    notes += expert_notes
    if not notes:
        return profile
    stamp = replace(profile.stamp, notes=(*profile.stamp.notes, *notes))
    decode, prefill, mixed = (smooth[kind] for kind in _GROWING_AXES)
    smoothed = replace(tables, dense=dense, head=head, decode=decode, prefill=prefill, mixed=mixed)
    return Profile(stamp, replace(smoothed, experts=experts))


def _steady_experts(tables: tuple[ExpertTable, ...]) -> tuple[tuple[ExpertTable, ...], list[str]]:
    """More tokens and more activated experts both count as more work."""
    found, notes = [], []
    for table in tables:
        lattice, bad = _bridged(table.lattice, (0, 1))
        points = int((~np.isnan(lattice.values)).sum())
        require_few(bad, points, "the table of experts")
        if bad:
            notes.append(
                f"experts ({table.expert_tp} x {table.expert_ep} GPUs): {bad} of {points} times are bad, "
                f"more work takes over {FALL:.0%} less: their neighbours' line stands in"
            )
        found.append(replace(table, lattice=lattice))
    return tuple(found), notes


def _without(curve: Curve, name: str, unit: str) -> tuple[Curve, list[str]]:
    bad = bad_points(np.array(curve.counts, dtype=np.float64), np.array(curve.seconds), PRODUCT_FALL)
    require_few(len(bad), len(curve.counts), f"the {name} table over {unit}", PRODUCT_FALL)
    if not len(bad):
        return curve, []
    gone = ", ".join(str(curve.counts[at]) for at in bad)
    rows = [at for at in range(len(curve.counts)) if at not in set(bad.tolist())]
    left = Curve(tuple(curve.counts[at] for at in rows), tuple(curve.seconds[at] for at in rows))
    return left, [f"{name}: left out at {gone} {unit}, where more work takes over {PRODUCT_FALL:.0%} less"]


def _bridged(lattice: Lattice, axes: tuple[int, ...]) -> tuple[Lattice, int]:
    """The lattice with every bad point along one of ``axes`` replaced, and the number of bad points."""
    values, bad = lattice.values.copy(), np.zeros(lattice.values.shape, dtype=np.bool_)
    for axis in axes:
        counts = lattice.axes[axis]
        lines = np.moveaxis(values, axis, -1)
        marks = np.moveaxis(bad, axis, -1)
        for index in np.ndindex(lines.shape[:-1]):
            _bridge(np.asarray(counts, dtype=np.float64), lines[index], marks[index])
    return (Lattice(lattice.axes, values), int(bad.sum())) if bad.any() else (lattice, 0)


def _bridge(counts: Floats, line: Floats, marks: npt.NDArray[np.bool_]) -> None:
    """Replace the bad points of one line in place, and mark them."""
    known = np.flatnonzero(~np.isnan(line))
    bad = known[bad_points(counts[known], line[known])]
    if not len(bad):
        return
    good = np.setdiff1d(known, bad)
    places = np.log(counts + _LOG_OFFSET)
    line[bad] = np.exp(np.interp(places[bad], places[good], np.log(line[good])))
    marks[bad] = True
