"""Series of samples as monitoring keeps them, and their values at the instants of a record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_INSTANCE: Final = ("namespace", "pod", "instance", "engine", "engine_index", "dp_rank", "server")
_HELD: Final = 0.999
"""A sample holds for this many steps of its series: where the next one is missing the instance is gone."""
_SAME_S: Final = 1e-3
"""Times closer than this are the same: those of Prometheus have three decimals."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeSeries:
    """Samples of one series, by ascending time in seconds. ``place``: where it was read, for errors."""

    name: str
    labels: Mapping[str, str]
    at_s: Floats
    values: Floats
    place: str

    @property
    def instance(self) -> tuple[str, ...]:
        """The labels that tell instances of an engine apart."""
        return tuple([self.labels[name] for name in _INSTANCE if name in self.labels])

    @property
    def step_s(self) -> float:
        """The usual time between two samples; 0 of a single one."""
        return float(np.median(np.diff(self.at_s))) if len(self.at_s) > 1 else 0.0


def instants_of(series: Sequence[TimeSeries]) -> Floats:
    """Return the times of the series with the most samples per second, and of those as often as it."""
    steps = [one.step_s for one in series if one.step_s]
    least = min(steps, default=0.0)
    often = [one.at_s for one in series if one.step_s <= 1.01 * least]
    found: Floats = np.unique(np.round(np.concatenate(often), 3))
    return found


def level(series: TimeSeries, at_s: Floats) -> Floats:
    """Return the newest sample at each instant; NaN where the next one should have come already."""
    place = np.searchsorted(series.at_s, at_s + _SAME_S, side="right") - 1
    age = at_s - series.at_s[np.maximum(place, 0)]
    holds = (place >= 0) & (age <= max(_HELD * series.step_s, _SAME_S))
    return np.where(holds, series.values[np.maximum(place, 0)], np.nan)


def grown(series: Sequence[TimeSeries], at_s: Floats) -> Floats:
    """Return how much counters had grown, together, from their first samples up to each instant.

    A value below the one before it means that the counter began again at 0, as Prometheus' ``rate`` takes it.
    """
    total = np.zeros(len(at_s))
    for one in series:
        known = np.isfinite(one.values)
        values = one.values[known]
        if len(values):
            steps = np.diff(values)
            steps = np.where(steps < 0, values[1:], steps)
            total += np.interp(at_s, one.at_s[known], np.concatenate(([0.0], np.cumsum(steps))))
    return total


def per_s(total: Floats, at_s: Floats) -> Floats:
    """Return the growth per second up to each instant; that of the second one also at the first."""
    if len(at_s) < 2:
        return np.full(len(at_s), np.nan)
    rates = np.diff(total) / np.diff(at_s)
    return np.concatenate((rates[:1], rates))


def in_window(total: Floats, at_s: Floats, window_s: float) -> Floats:
    """Return the growth in the window before each instant."""
    before: Floats = np.interp(at_s - window_s, at_s, total)
    return total - before


def quantile(share: float, limits: Floats, counts: Floats) -> Floats:
    """Return a quantile at each instant, as Prometheus' ``histogram_quantile`` computes it.

    ``limits``: of the buckets, the last infinite. ``counts``: cumulative, buckets x instants. NaN: none.
    """
    found = np.full(counts.shape[1], np.nan)
    for place, own in enumerate(counts.T):
        if own[-1] <= 0:
            continue
        rank = share * own[-1]
        bucket = min(int(np.searchsorted(own, rank, side="left")), len(own) - 1)
        if bucket == len(own) - 1:
            found[place] = limits[-2]
            continue
        low, below = (limits[bucket - 1], own[bucket - 1]) if bucket else (0.0, 0.0)
        inside = own[bucket] - below
        found[place] = low + (limits[bucket] - low) * ((rank - below) / inside if inside > 0 else 0.0)
    return found
