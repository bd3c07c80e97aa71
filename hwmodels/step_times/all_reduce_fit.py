"""Fits stretches of a start and a rate to measured all-reduce times, and reports the fit's errors."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats
from hwmodels.step_times.all_reduce import Stretch
from hwmodels.step_times.fit import non_negative

# Stretches are added until every measured size is within this error, or there are MOST_STRETCHES.
TOLERANCE: Final = 0.06
MOST_STRETCHES: Final = 5
# Two points decide a line, so that a single one never makes a stretch of its own.
FEWEST_POINTS: Final = 2


@dataclass(frozen=True, slots=True)
class StretchFit:
    """``errors`` are relative, per measured size; ``held_out``: of every second one, left out in turn."""

    stretches: tuple[Stretch, ...]
    errors: Floats
    held_out: Floats


def fit_stretches(sizes: Floats, seconds: Floats) -> StretchFit:
    """The fewest stretches within ``TOLERANCE``, at most ``MOST_STRETCHES``; errors relative."""
    if len(sizes) < 2 * FEWEST_POINTS:
        raise HardwareError(f"{len(sizes)} message sizes are too few; measure at least {2 * FEWEST_POINTS}")
    stretches = _fitted(sizes, seconds)
    held_out = []
    for left in (1, 2):
        some = np.ones(len(sizes), dtype=np.bool_)
        some[left:-1:2] = False
        without = _fitted(sizes[some], seconds[some])
        held_out.append(stretches_s(without, sizes[~some]) / seconds[~some] - 1.0)
    errors: Floats = stretches_s(stretches, sizes) / seconds - 1.0
    return StretchFit(stretches, errors, np.concatenate(held_out))


def stretches_s(stretches: tuple[Stretch, ...], sizes: Floats) -> Floats:
    """Seconds at ``sizes``."""
    starts = np.array([stretch.from_size for stretch in stretches])
    at = np.maximum(np.searchsorted(starts, sizes, side="right") - 1, 0)
    lines = np.array([(stretch.start_s, stretch.s_per_unit) for stretch in stretches])
    seconds: Floats = lines[at, 0] + lines[at, 1] * sizes
    return seconds


def _fitted(sizes: Floats, seconds: Floats) -> tuple[Stretch, ...]:
    fitted: tuple[Stretch, ...] = ()
    for count in range(1, min(MOST_STRETCHES, len(sizes) // FEWEST_POINTS) + 1):
        fitted = _cut(sizes, seconds, count)
        if np.abs(stretches_s(fitted, sizes) / seconds - 1.0).max() <= TOLERANCE:
            break
    return fitted


def _cut(sizes: Floats, seconds: Floats, count: int) -> tuple[Stretch, ...]:
    """The ``count`` stretches with the least sum of squared relative errors (dynamic programming)."""
    points = len(sizes)
    lines = {
        (low, high): _line(sizes[low:high], seconds[low:high])
        for low in range(points)
        for high in range(low + FEWEST_POINTS, points + 1)
    }
    best: dict[int, tuple[float, tuple[Stretch, ...]]] = {0: (0.0, ())}
    for _ in range(count):
        reached: dict[int, tuple[float, tuple[Stretch, ...]]] = {}
        for (low, high), (residual, start_s, s_per_unit) in lines.items():
            if low not in best:
                continue
            total, before = best[low][0] + residual, best[low][1]
            if high not in reached or total < reached[high][0]:
                first = _boundary(before[-1], start_s, s_per_unit, sizes[low - 1 : low + 1]) if low else 0
                reached[high] = (total, (*before, Stretch(first, start_s, s_per_unit)))
        best = reached
    return best[points][1]


def _boundary(before: Stretch, start_s: float, s_per_unit: float, gap: Floats) -> int:
    """Where the next line takes over in the ``gap`` between two measured sizes.

    Where the lines cross. If the next line is above throughout the gap: at its end (an algorithm that takes
    over from that size on). If it is below throughout: right behind its start.
    """
    low, high = int(gap[0]), int(gap[1])
    above_at = [start_s + s_per_unit * at - before.start_s - before.s_per_unit * at for at in (low, high)]
    if above_at[1] > 0.0:
        return high
    if above_at[0] < 0.0:
        return low + 1
    return min(high, low + 1 + int((high - low) * above_at[0] / max(above_at[0] - above_at[1], 1e-300)))


def _line(sizes: Floats, seconds: Floats) -> tuple[float, float, float]:
    """(sum of squared relative errors, start, seconds per unit), neither start nor rate negative."""
    design = np.stack([np.ones(len(sizes)), sizes], axis=1) / seconds[:, None]
    start_s, s_per_unit = (float(value) for value in non_negative(design, np.ones(len(sizes))))
    residual = float(np.square(design @ np.array([start_s, s_per_unit]) - 1.0).sum())
    return residual, start_s, s_per_unit
