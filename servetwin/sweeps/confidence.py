"""95 % intervals of a mean over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom; beyond the last value the normal
# distribution's, which is then less than 4 % smaller.
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL: Final = 1.960


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean. ``half`` is the half width of its 95 % interval; None for a single value."""

    count: int
    mean: float
    half: float | None

    @property
    def low(self) -> float | None:
        """The lower end; None for a single value."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """The upper end; None for a single value."""
        return None if self.half is None else self.mean + self.half

    @property
    def holds_zero(self) -> bool:
        """Whether a difference may be zero; unknown for a single value."""
        return self.half is None or abs(self.mean) <= self.half


def interval_of(values: Sequence[float]) -> Interval:
    """Return the interval of at least one value, as independent draws of a normal distribution."""
    if len(values) == 1:
        return Interval(1, values[0], None)
    degrees = len(values) - 1
    t = _T[degrees - 1] if degrees <= len(_T) else _NORMAL
    return Interval(len(values), fmean(values), t * stdev(values) / math.sqrt(len(values)))
