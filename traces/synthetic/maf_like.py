"""A stand-in for the Azure Functions trace: many functions, most seldom called, a few all the time."""

import math
from typing import Final

import numpy as np

from traces.checks import number_within, whole_number
from traces.columns import Names
from traces.streams import stream
from traces.synthetic.arrivals import profile_arrivals_ns
from traces.synthetic.drawn import Arrivals, drawn_to_the_end, drawn_workload
from traces.synthetic.expected import expected_by
from traces.synthetic.many_models import superposed
from traces.synthetic.rate_profile import DIURNAL_PIECES, Floats, by_the_minute, diurnal
from traces.workload import Workload

# Shahrad et al., Serverless in the Wild (USENIX ATC 2020): the share of applications invoked at most once per
# hour and at most once per minute on average, and the share of invocations that the most popular ones make.
HOURLY_SHARE: Final = 0.45
MINUTELY_SHARE: Final = 0.81
POPULAR_SHARE: Final = 0.186
POPULAR_INVOCATIONS: Final = 0.996
# The same paper: about half of all invocations are a constant base under the daily rise and fall. A sinusoid
# whose trough is half its mean has that base.
DIURNAL_PEAK_TO_MEAN: Final = 1.5
# Ours: the least popular is called once in the two weeks of that trace.
LEAST_PER_S: Final = 1 / (14 * 86_400)
MAF_LABEL: Final = (
    "synthetic stand-in for Azure Functions: popularity and daily base as published, gaps Gamma,"
    " one token in and one out"
)
_DEFAULT_REQUESTS: Final = 100_000
_LEAST_FUNCTIONS: Final = 11  # fewer have no popular 18.6 % beside those called once per minute


def maf_rates_per_s(functions: int) -> Floats:
    """The mean rate of each of so many functions, most popular first, with the published shares.

    The quantile function is straight in the logarithm of the rate between the least popular (once in two
    weeks), once per hour at 45 %, once per minute at 81 %, and a most popular one, which is solved for so
    that the top 18.6 % have 99.6 % of all invocations. Raises TraceError on fewer than 11 functions.
    """
    count = whole_number("functions", functions, _LEAST_FUNCTIONS, 100_000)
    probability = (np.arange(count) + 0.5) / count
    low, high = math.log(1 / 60), math.log(1e12)
    for _ in range(100):
        middle = (low + high) / 2
        rates = _rates_per_s(probability, middle)
        low, high = (middle, high) if popular_invocations(rates) < POPULAR_INVOCATIONS else (low, middle)
    return _rates_per_s(probability, high)[::-1].copy()


def _rates_per_s(probability: Floats, log_most: float) -> Floats:
    knots = (0.0, HOURLY_SHARE, MINUTELY_SHARE, 1.0)
    logs = (math.log(LEAST_PER_S), math.log(1 / 3600), math.log(1 / 60), log_most)
    return np.asarray(np.exp(np.interp(probability, knots, logs)))


def popular_invocations(invocations: Floats) -> float:
    """The share of all ``invocations`` (one number per function) that the top 18.6 % of functions have."""
    ranked = np.sort(invocations)[::-1]
    return float(ranked[: round(POPULAR_SHARE * len(ranked))].sum() / ranked.sum())


def maf_like(
    seed: int = 0,
    requests: int | None = None,
    rate_per_s: float = 0.0,
    *,
    functions: int = 100,
    least_gap_cv: float = 0.5,
    most_gap_cv: float = 4.0,
    peak_to_mean: float = DIURNAL_PEAK_TO_MEAN,
    start_s: float = 0.0,
    duration_s: float = 0.0,
    minute_cv: float = 0.0,
    minute_memory: float = 0.5,
) -> Workload:
    """Invocations of many functions, named in ``model`` (function_00: most popular), one token in and out.

    rate_per_s: of all functions together; 0 is the sum of the published rates (``maf_rates_per_s``), another
    scales all alike. Each function has Gamma gaps with a CV of its own between least_gap_cv and most_gap_cv,
    even in the logarithm (ours). All follow one day: peak_to_mean 1.5 leaves half the invocations as a
    constant base, the peak is at noon. start_s: the run's start, seconds after midnight. minute_cv: every
    minute of the day has its own factor, log-normal with mean 1 and this CV (ours; 0: none), whose logarithm
    has the correlation minute_memory with that of the minute before. The trace ends with ``requests`` or, if
    above 0, with ``duration_s``, whichever comes first; with a duration and no ``requests`` it has all that
    come before, with neither 100,000.
    Raises TraceError on bad parameters.
    """
    rates = maf_rates_per_s(functions)
    total = float(rates.sum()) if rate_per_s == 0 else rate_per_s
    midnight_s = number_within("start_s", start_s, 0, 86_400)
    profile = diurnal(total, peak_to_mean, 86_400.0, 43_200.0 - midnight_s)
    if minute_cv:
        profile = by_the_minute(profile, minute_factors(seed, minute_cv, minute_memory))
    cvs = _gap_cvs(seed, len(rates), least_gap_cv, most_gap_cv)
    shares = rates / rates.sum()

    def draw(count: int) -> Arrivals:
        times, codes = superposed(seed, "maf_like/arrivals", shares, cvs, count)
        return profile_arrivals_ns(times, profile), codes

    count, (arrival_ns, codes) = drawn_to_the_end(
        draw, requests, duration_s, lambda end_s: expected_by(profile, end_s), _DEFAULT_REQUESTS
    )
    assert codes is not None
    width = len(str(len(rates) - 1))
    names = Names(codes, tuple(f"function_{index:0{width}d}" for index in range(len(rates))))
    parameters = {"requests": count, "rate_per_s": rate_per_s, "functions": functions}
    parameters |= {"least_gap_cv": least_gap_cv, "most_gap_cv": most_gap_cv, "peak_to_mean": peak_to_mean}
    parameters |= {"start_s": start_s, "duration_s": duration_s}
    if minute_cv:
        parameters |= {"minute_cv": minute_cv, "minute_memory": minute_memory}
    return drawn_workload(
        "maf_like",
        seed,
        arrival_ns=arrival_ns,
        lengths="1x1",
        label=MAF_LABEL,
        parameters=parameters,
        model=names,
    )


def minute_factors(seed: int, minute_cv: float, minute_memory: float) -> Floats:
    """A factor for each minute of a day, counted from the run's start. Raises TraceError on bad values."""
    spread = math.sqrt(math.log1p(number_within("minute_cv", minute_cv, 0, 20) ** 2))
    memory = number_within("minute_memory", minute_memory, 0, 0.999)
    fresh = stream(seed, "maf_like/minutes").standard_normal(DIURNAL_PIECES)
    level = np.empty(DIURNAL_PIECES)
    level[0] = fresh[0]
    for minute in range(1, DIURNAL_PIECES):
        level[minute] = memory * level[minute - 1] + math.sqrt(1 - memory**2) * fresh[minute]
    return np.asarray(np.exp(spread * level - spread**2 / 2))


def _gap_cvs(seed: int, count: int, least: float, most: float) -> list[float]:
    least = number_within("least_gap_cv", least, 1e-3, 1e3)
    most = number_within("most_gap_cv", most, least, 1e3)
    drawn = stream(seed, "maf_like/gap_cv").random(count)
    return list(np.exp(math.log(least) + drawn * math.log(most / least)))
