"""Measured times over a count that fall where work grows: single bad points are found, to be left out."""

from typing import Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.profile import Floats

# A fall by less than this share is noise that lines through the points even out.
FALL: Final = 0.10
# More bad points than this share of a table: it is not single points that are wrong with it.
MOST_BAD: Final = 0.1


def bad_points(counts: Floats, seconds: Floats, what: str) -> npt.NDArray[np.intp]:
    """Positions of points without which ``seconds`` never falls by more than ``FALL`` to the next count.

    Of two neighbours that fall, the one farther from the line (in logarithms) between the points around them
    is bad. HardwareError, with ``what`` as the table's name, when more than ``MOST_BAD`` of the points are.
    """
    places, logs = np.log(counts), np.log(seconds)
    left = list(range(len(counts)))
    while (fall := _first_fall([float(seconds[at]) for at in left])) is not None:
        around = [at for at in (fall - 1, fall + 2) if 0 <= at < len(left)]
        if not around:
            raise HardwareError(f"{what} has {len(left)} points and they fall; measure it again")
        known = [left[at] for at in around]
        line = np.interp(places[left[fall : fall + 2]], places[known], logs[known])
        misses = np.abs(logs[left[fall : fall + 2]] - line)
        left.pop(fall if misses[0] >= misses[1] else fall + 1)
    bad = np.setdiff1d(np.arange(len(counts)), left)
    if len(bad) > max(1.0, MOST_BAD * len(counts)):
        raise HardwareError(
            f"{what} is too noisy: {len(bad)} of its {len(counts)} times break the rule that more work never "
            f"takes {FALL:.0%} less; measure it again"
        )
    return bad


def _first_fall(seconds: list[float]) -> int | None:
    """The first point whose next one is lower by more than ``FALL``."""
    falls = (at for at in range(len(seconds) - 1) if seconds[at + 1] < (1.0 - FALL) * seconds[at])
    return next(falls, None)
