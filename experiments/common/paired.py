"""Means and paired ratios over seeds, with 95 % intervals of Student's t.

Every system of a comparison gets the same arrivals under one seed, so what one seed adds to both cancels in
their ratio. Ratios are averaged as logarithms: half as long and twice as long are equally far from equal.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

from servetwin.report.number_text import number

# 97.5 % points of Student's t for 1 to 30 degrees of freedom, as in any table; beyond, of 30.
_T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimated:
    """A mean over seeds and its 95 % interval; both ends None with one seed."""

    value: float
    low: float | None
    high: float | None

    def shown(self, write: Callable[[float], str] = number) -> str:
        """``0.52 [0.47, 0.58]``."""
        if self.low is None or self.high is None:
            return write(self.value)
        return f"{write(self.value)} [{write(self.low)}, {write(self.high)}]"


def mean_of(values: Sequence[float]) -> Estimated:
    """The mean of one number per seed."""
    mean = fmean(values)
    half = half_width(values)
    return Estimated(mean, None, None) if half is None else Estimated(mean, mean - half, mean + half)


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Estimated | None:
    """The geometric mean of ours / others, seed by seed; None where a value is not above 0."""
    if not all(0 < value < math.inf for value in (*ours, *theirs)):
        return None
    return geometric_mean_of([our / other for our, other in zip(ours, theirs, strict=True)])


def geometric_mean_of(ratios: Sequence[float]) -> Estimated:
    """The geometric mean of one ratio per seed, all above 0."""
    log = mean_of([math.log(ratio) for ratio in ratios])
    low, high = (None if end is None else math.exp(end) for end in (log.low, log.high))
    return Estimated(math.exp(log.value), low, high)


def difference_of(ours: Sequence[float], theirs: Sequence[float]) -> Estimated:
    """The mean of ours - others, seed by seed."""
    return mean_of([our - other for our, other in zip(ours, theirs, strict=True)])


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    return t_95(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def t_95(degrees: int) -> float:
    """The 97.5 % point of Student's t."""
    return _T_95[min(degrees, len(_T_95)) - 1]
