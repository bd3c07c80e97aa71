"""Arrivals counted in bins of equal time, and what their sequence says about bursts."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number
from traces.errors import TraceError
from traces.streams import stream
from traces.workload import NS_PER_S, Workload

BIN_S: Final = 10.0
"""The bins that burst statistics are published and compared in."""
LAGS: Final = (1, 3)
MAX_BINS: Final = 50_000_000
_THINNINGS: Final = 400
_INTERVAL: Final = (0.025, 0.975)
_DRAWS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountStatistics:
    """How uneven counts are. cv: standard deviation over mean. dispersion: variance over mean, 1 for Poisson.

    autocorrelation: lag in bins -> correlation of the sequence with itself, None when all counts are equal or
    the sequence is not longer than the lag.
    """

    bins: int
    mean: float
    cv: float
    peak_to_mean: float
    dispersion: float
    autocorrelation: dict[int, float | None]

    def named(self) -> dict[str, float | None]:
        """The burst statistics by name: cv, peak/mean, and one autocorrelation per lag."""
        lags = {f"autocorrelation lag {lag}": value for lag, value in self.autocorrelation.items()}
        return {"cv": self.cv, "peak/mean": self.peak_to_mean, **lags}


def arrival_counts(
    workload: Workload, bin_s: float = BIN_S, bins_of: Workload | None = None
) -> NDArray[np.int64]:
    """Arrivals per bin from the first arrival on; the last, cut bin is left out unless it is the only one.

    bins_of: the workload whose first and last arrival make the bins, when one is to be compared with another
    on the same time axis; arrivals outside them are left out.
    """
    bin_ns = round(positive_number("bin_s", bin_s) * NS_PER_S)
    frame = workload if bins_of is None else bins_of
    since_ns = workload.arrival_ns - frame.arrival_ns[0]
    since_ns = since_ns[since_ns >= 0]
    bins = max(1, int(frame.arrival_ns[-1] - frame.arrival_ns[0]) // max(bin_ns, 1))
    if bin_ns < 1 or bins > MAX_BINS:
        raise TraceError(
            f"bin_s={bin_s} makes more than {MAX_BINS} bins of {workload.name}: write a larger one"
        )
    return np.bincount(np.minimum(since_ns // bin_ns, bins), minlength=bins + 1)[:bins].astype(np.int64)


def count_statistics(counts: NDArray[np.int64]) -> CountStatistics:
    """Burst statistics of one sequence of counts that are not all zero."""
    mean, cv, peak, lags = (column[0] for column in _statistics(counts[None, :].astype(np.float64)))
    correlations = {
        lag: float(value) if np.isfinite(value) else None for lag, value in zip(LAGS, lags, strict=True)
    }
    return CountStatistics(
        bins=len(counts),
        mean=float(mean),
        cv=float(cv),
        peak_to_mean=float(peak),
        dispersion=float(cv**2 * mean),
        autocorrelation=correlations,
    )


@dataclass(frozen=True, slots=True)
class Expected:
    """What random thinnings make of a statistic: its mean and the interval that 95 of 100 fall into."""

    mean: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def expected_under_thinning(counts: NDArray[np.int64], share: float, seed: int = 0) -> dict[str, Expected]:
    """Burst statistics of ``counts`` when every arrival is kept with probability ``share``, by name.

    Thinning makes counts more alike Poisson's: with mean m, variance v and autocovariance c they become
    share*m, share^2*v + share*(1 - share)*m and share^2*c, so that no thinned trace can keep its source's
    values. The intervals come from 400 binomial thinnings of the counts themselves.
    """
    generator = stream(seed, "expected_under_thinning")
    size = max(1, min(_THINNINGS, _DRAWS_AT_ONCE // len(counts)))
    parts = []
    for start in range(0, _THINNINGS, size):
        rows = min(size, _THINNINGS - start)
        parts.append(_statistics(generator.binomial(counts, share, (rows, len(counts))).astype(np.float64)))
    _, cv, peak, lags = (np.concatenate(column) for column in zip(*parts, strict=True))
    named = {"cv": cv, "peak/mean": peak}
    named |= {f"autocorrelation lag {lag}": lags[:, at] for at, lag in enumerate(LAGS)}
    return {name: _expected(values) for name, values in named.items()}


def _expected(values: NDArray[np.float64]) -> Expected:
    known = values[np.isfinite(values)]
    if not len(known):
        return Expected(float("nan"), float("-inf"), float("inf"))
    low, high = np.quantile(known, _INTERVAL)
    return Expected(float(known.mean()), float(low), float(high))


def _statistics(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """(mean, cv, peak/mean, autocorrelations at LAGS) of every row of counts; nan where undefined."""
    mean = rows.mean(axis=1)
    off = rows - mean[:, None]
    square = (off * off).sum(axis=1)
    lags = np.full((len(rows), len(LAGS)), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        for at, lag in enumerate(LAGS):
            if rows.shape[1] > lag:
                lags[:, at] = (off[:, :-lag] * off[:, lag:]).sum(axis=1) / square
        return mean, rows.std(axis=1) / mean, rows.max(axis=1) / mean, lags
