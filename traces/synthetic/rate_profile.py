"""How the mean rate of arrivals goes up and down: pieces over time, their integral and its inverse."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, positive_number
from traces.columns import frozen
from traces.errors import TraceError

Floats = NDArray[np.float64]
_MOST = 1e9  # 31 years of seconds; one arrival per nanosecond
DIURNAL_PIECES = 1440
"""Straight pieces per period of a sinusoid: the rate is off by (2 pi / 1440)**2 / 8 = 2.4e-6 at most."""


@dataclass(frozen=True, slots=True, eq=False)
class RateProfile:
    """Arrivals per second as a function of time: straight pieces, with jumps between them where wanted.

    edges_s: rising from 0, one more than pieces. start_per_s, end_per_s: the rate at both ends of each piece,
    at least 0. repeats: after the last edge all begins again; otherwise the last rate holds for ever.
    Times before 0 have no arrivals. Raises TraceError on pieces out of order or a profile without arrivals.
    """

    edges_s: Floats
    start_per_s: Floats
    end_per_s: Floats
    repeats: bool = False

    def __post_init__(self) -> None:
        for column in ("edges_s", "start_per_s", "end_per_s"):
            object.__setattr__(self, column, frozen(np.array(getattr(self, column), dtype=np.float64)))
        self._check()

    def _check(self) -> None:
        edges, start, end = self.edges_s, self.start_per_s, self.end_per_s
        if start.ndim != 1 or start.shape != end.shape or edges.shape != (len(start) + 1,) or len(start) == 0:
            raise TraceError("a rate profile needs one start and end rate per piece and one edge more")
        if edges[0] != 0 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise TraceError("a rate profile needs edges_s that rise from 0: write them in order")
        rates = np.concatenate((start, end))
        if not (rates.min() >= 0 and rates.max() <= _MOST and edges[-1] <= _MOST):
            raise TraceError(
                "a rate profile is out of range: write rates from 0 to a billion arrivals per second and"
                " times up to a billion seconds"
            )
        if self._areas()[-1] <= 0 and end[-1] <= 0:
            raise TraceError("a rate profile has no arrivals: write a rate above 0 in at least one piece")

    def _areas(self) -> Floats:
        """Arrivals expected up to each edge."""
        areas = np.diff(self.edges_s) * (self.start_per_s + self.end_per_s) / 2
        return np.concatenate((np.zeros(1), np.cumsum(areas)))

    def _folded(self, values: Floats, period: float) -> tuple[Floats, Floats]:
        """(whole periods before, rest within the first period) of values on one axis."""
        if not self.repeats:
            return np.zeros_like(values), values
        rounds = np.floor(values / period)
        return rounds, np.clip(values - rounds * period, 0.0, period)

    def rate_per_s(self, times_s: Floats) -> Floats:
        """Arrivals per second at each time."""
        _, rest = self._folded(np.asarray(times_s, np.float64), self.edges_s[-1])
        piece = _piece(self.edges_s, rest)
        share = np.clip((rest - self.edges_s[piece]) / np.diff(self.edges_s)[piece], 0.0, 1.0)
        rate = self.start_per_s[piece] * (1 - share) + self.end_per_s[piece] * share
        return np.asarray(np.where(np.asarray(times_s) < 0, 0.0, rate), np.float64)

    def expected(self, times_s: Floats) -> Floats:
        """The integral of the rate from 0 to each time: how many arrivals are expected by then."""
        areas = self._areas()
        rounds, rest = self._folded(np.maximum(np.asarray(times_s, np.float64), 0.0), self.edges_s[-1])
        piece = _piece(self.edges_s, rest)
        width = np.diff(self.edges_s)[piece]
        into = rest - self.edges_s[piece]
        inside = np.minimum(into, width)
        slope = (self.end_per_s - self.start_per_s)[piece] / width
        area = inside * (self.start_per_s[piece] + slope * inside / 2)
        beyond = (into - inside) * self.end_per_s[piece]
        return np.asarray(rounds * areas[-1] + areas[piece] + area + beyond, np.float64)

    def times_s(self, expected: Floats) -> Floats:
        """The inverse of ``expected``: when so many arrivals are expected, never falling as it grows.

        Raises TraceError when the rate ends at 0 before that many.
        """
        wanted, areas = np.asarray(expected, np.float64), self._areas()
        rounds, rest = self._folded(wanted, areas[-1])
        piece = _piece(areas, rest)
        start, end = self.start_per_s[piece], self.end_per_s[piece]
        width = np.diff(self.edges_s)[piece]
        area = rest - areas[piece]
        inside = np.minimum(area, np.diff(areas)[piece])
        into = np.minimum(_time_of_area(inside, start, (end - start) / width), width)
        beyond = area - inside
        if ((beyond > 0) & (end <= 0)).any():
            raise TraceError(
                f"the rate ends at 0 after {areas[-1]:g} arrivals are expected: ask for fewer requests"
            )
        with np.errstate(over="ignore"):  # a rate near 0 makes it infinite, and callers refuse that
            late = np.divide(beyond, end, out=np.zeros_like(beyond), where=beyond > 0)
        return np.asarray(rounds * self.edges_s[-1] + self.edges_s[piece] + into + late, np.float64)


def _piece(edges: Floats, values: Floats) -> NDArray[np.int64]:
    """The piece each value lies in; the first or last one for values outside."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _time_of_area(area: Floats, rate: Floats, slope: Floats) -> Floats:
    """x with ``rate * x + slope * x**2 / 2 = area``, in the form that loses no digits at small slopes."""
    root = rate + np.sqrt(np.maximum(rate * rate + 2 * slope * area, 0.0))
    with np.errstate(over="ignore"):  # cut off at the piece's end
        return np.divide(2 * area, root, out=np.zeros_like(area), where=root > 0)


def _profile(
    edges_s: Sequence[float], start_per_s: Sequence[float], end_per_s: Sequence[float], repeats: bool = False
) -> RateProfile:
    return RateProfile(np.array(edges_s), np.array(start_per_s), np.array(end_per_s), repeats)


def constant(rate_per_s: float) -> RateProfile:
    """The same rate at all times."""
    rate = positive_number("rate_per_s", rate_per_s)
    return _profile([0.0, 1.0], [rate], [rate])


def onsets(
    base_per_s: float,
    *,
    times_s: Sequence[float],
    factor: float = 5.0,
    ramp_s: float = 2.0,
    hold_s: float = 20.0,
    decay_s: float = 20.0,
) -> RateProfile:
    """``base_per_s`` but for sudden bursts that begin at ``times_s``.

    In each the rate climbs straight to ``factor`` times the base within ``ramp_s``, holds for ``hold_s`` and
    falls straight back within ``decay_s``. Raises TraceError when one begins before the one before has ended.
    """
    base, times = positive_number("base_per_s", base_per_s), [float(time) for time in times_s]
    spans = [
        positive_number(*pair) for pair in (("ramp_s", ramp_s), ("hold_s", hold_s), ("decay_s", decay_s))
    ]
    top = base * positive_number("factor", factor)
    edges, starts, ends = [0.0], [], []
    for time in times:
        if number_within("onset_times_s", time, 0, _MOST) < edges[-1]:
            raise TraceError(
                f"the onset at {time:g} s comes before {edges[-1]:g} s, the end of the previous surge: write"
                f" rising times at least ramp_s + hold_s + decay_s = {sum(spans):g} s apart"
            )
        pieces = ((time - edges[-1], base, base), *zip(spans, (base, top, top), (top, top, base)))
        for span, start, end in pieces:
            if span > 0:
                edges.append(edges[-1] + span)
                starts.append(start)
                ends.append(end)
    return _profile([*edges, edges[-1] + 1.0], [*starts, base], [*ends, base])


def diurnal(
    mean_per_s: float, peak_to_mean: float = 1.5, period_s: float = 86_400.0, peak_at_s: float = 43_200.0
) -> RateProfile:
    """A sinusoid that repeats every ``period_s``, highest at ``peak_at_s``. peak_to_mean: 1, flat, to 2."""
    mean, period = positive_number("mean_per_s", mean_per_s), positive_number("period_s", period_s)
    swing = number_within("peak_to_mean", peak_to_mean, 1, 2) - 1.0
    peak = number_within("peak_at_s", peak_at_s, -_MOST, _MOST)
    place = np.arange(DIURNAL_PIECES + 1, dtype=np.float64)
    edges = place * (period / DIURNAL_PIECES)
    angle = 2 * math.pi * (place / DIURNAL_PIECES - peak / period)
    rate = np.maximum(mean * (1 + swing * np.cos(angle)), 0.0)
    return RateProfile(edges, rate[:-1], rate[1:], repeats=True)


def by_the_minute(profile: RateProfile, factors: Floats) -> RateProfile:
    """The same, each of its pieces times a factor of its own; between pieces the rate then jumps."""
    return RateProfile(
        profile.edges_s, profile.start_per_s * factors, profile.end_per_s * factors, profile.repeats
    )


def on_off(
    on_per_s: float,
    *,
    off_per_s: float,
    on_s: float,
    off_s: float,
    generator: np.random.Generator,
    cover: float,
) -> RateProfile:
    """Bursts at ``on_per_s`` between spells at ``off_per_s``, both of exponential length (means on_s, off_s).

    The first burst begins at 0. As many are drawn as ``cover`` arrivals need; fewer are a prefix of more.
    """
    rates = positive_number("on_per_s", on_per_s), _least_zero("off_per_s", off_per_s)
    means = positive_number("on_s", on_s), positive_number("off_s", off_s)
    spans: list[Floats] = []
    total = 0.0
    while total <= cover * (1 + 1e-9) + 1.0:  # the profile adds up in another order
        drawn = (
            generator.standard_exponential((256, 2)) * means
        )  # row by row, so that order never depends on cover
        total += float((drawn * rates).sum())
        spans.append(drawn)
    ends_s = np.cumsum(np.concatenate(spans).reshape(-1))
    rate = np.tile(rates, len(ends_s) // 2)
    lasts = np.diff(ends_s, prepend=0.0) > 0  # some are too short to tell apart this late
    return RateProfile(np.concatenate((np.zeros(1), ends_s[lasts])), rate[lasts], rate[lasts])


def on_off_fixed(on_per_s: float, off_per_s: float, on_s: float, off_s: float) -> RateProfile:
    """Bursts of ``on_s`` at ``on_per_s`` and spells of ``off_s`` at ``off_per_s`` in strict turns from 0."""
    on, off = positive_number("on_per_s", on_per_s), _least_zero("off_per_s", off_per_s)
    first, second = positive_number("on_s", on_s), positive_number("off_s", off_s)
    return _profile([0.0, first, first + second], [on, off], [on, off], repeats=True)


def _least_zero(key: str, value: float) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else positive_number(key, value)
