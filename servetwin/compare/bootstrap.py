"""95 % intervals over paired requests, with requests close in time kept together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES: Final = 400
_SEED: Final = 0  # fixed, so that a comparison of two runs always gives the same intervals
_ENDS: Final = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Difference:
    """``value``: second minus first; ``low`` to ``high`` is the 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def distinguishable(self) -> bool:
        """Whether 0 is outside of the interval."""
        return not self.low <= 0.0 <= self.high

    @property
    def identical(self) -> bool:
        """Whether the difference is 0, whichever requests are drawn."""
        return self.low == self.value == self.high == 0.0


def differences(first: Floats, second: Floats, percents: tuple[float, ...]) -> list[Difference]:
    """Return differences of the mean, then of each percentile. Rows are equal requests in order of arrival.

    Requests are drawn again in blocks of about the square root of their number (Politis and Romano 1992,
    circular), since requests that queue together are late together.
    """
    count = len(first)
    places = _blocks(count, max(1, math.isqrt(count)))
    intervals = [_difference(second.mean() - first.mean(), (second - first)[places].mean(axis=1))]
    if percents:
        drawn = _quantiles(second[places], percents) - _quantiles(first[places], percents)
        whole = np.quantile(second, percents) - np.quantile(first, percents)
        intervals += [_difference(float(value), row) for value, row in zip(whole, drawn)]
    return intervals


def _blocks(count: int, length: int) -> NDArray[np.int64]:
    """Return [RESAMPLES, count] places, in runs of ``length`` consecutive ones, circular."""
    random = np.random.default_rng(_SEED)
    starts = random.integers(0, count, size=(RESAMPLES, -(-count // length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :count]
    return np.asarray(places % count, dtype=np.int64)


def arrival_blocks(arrival_s: Floats) -> NDArray[np.int64]:
    """Return [RESAMPLES, request]: how often each request is in a resample of blocks of arrival time.

    Blocks are windows of equal length in seconds, circular, about the square root of the requests in number:
    so a burst is drawn as a whole. Requests are in order of arrival.
    """
    count = len(arrival_s)
    at_s = arrival_s - arrival_s[0]
    blocks = max(1, math.isqrt(count))
    period_s = float(at_s[-1]) * (count + 1) / count or 1.0  # the last request is followed by a gap, too
    starts_s = np.random.default_rng(_SEED).uniform(0.0, period_s, size=(RESAMPLES, blocks))
    twice_s = np.concatenate([at_s, at_s + period_s])
    changes = np.zeros((RESAMPLES, 2 * count + 1), dtype=np.int64)
    rows = np.arange(RESAMPLES)[:, None]
    np.add.at(changes, (rows, np.searchsorted(twice_s, starts_s)), 1)
    np.add.at(changes, (rows, np.searchsorted(twice_s, starts_s + period_s / blocks)), -1)
    inside = changes.cumsum(axis=1)[:, :-1]
    return np.asarray(inside[:, :count] + inside[:, count:], dtype=np.int64)


def interval(drawn: Floats) -> tuple[float, float]:
    """Return the ends of the 95 % interval of resampled values."""
    low, high = np.quantile(drawn, _ENDS)
    return float(low), float(high)


def _quantiles(rows: Floats, percents: tuple[float, ...]) -> Floats:
    return np.asarray(np.quantile(rows, percents, axis=1), dtype=np.float64)


def _difference(value: float, drawn: Floats) -> Difference:
    return Difference(float(value), *interval(drawn))
