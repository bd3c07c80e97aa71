"""Arrival processes: Gamma gaps in operational time, bent by a rate profile into seconds."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, positive_number, whole_number
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.rate_profile import Floats, RateProfile, constant, diurnal, on_off, on_off_fixed, onsets
from traces.workload import MAX_ROWS, NS_PER_S

LONGEST_S: Final = 1e9
"""31 years, well inside int64 nanoseconds: no trace may last longer."""
_MOST_CYCLES: Final = 5_000_000
ONSET_TIMES_S: Final = "5+65+125+185+245"


def gamma_arrivals_ns(
    generator: np.random.Generator, count: int, rate_per_s: float, gap_cv: float
) -> NDArray[np.int64]:
    """``count`` arrivals in ns from 0 with Gamma gaps of mean 1 / ``rate_per_s`` and the given CV.

    Each gap is rounded before it is added: a longer trace begins with the shorter one to the nanosecond.
    """
    shape = gamma_shape(gap_cv)
    gaps_s = generator.standard_gamma(shape, size=count - 1) / (shape * rate_per_s)
    if not gaps_s.sum() <= LONGEST_S:
        raise TraceError(
            f"rate_per_s={rate_per_s!r} spreads {count} requests over more than 31 years: write a larger"
            " trace.rate_per_s or trace.utilization"
        )
    gaps_ns = np.rint(gaps_s * NS_PER_S).astype(np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(gaps_ns)))


def operational_times(generator: np.random.Generator, count: int, gap_cv: float) -> Floats:
    """``count`` arrivals of a stationary renewal process with Gamma gaps of mean 1 and the given CV.

    The wait for the first is drawn from the equilibrium law (a uniform share of a length-biased gap), not
    from the law of the gaps: only then is the mean number of arrivals up to u exactly u for every CV and
    every u. gap_cv 1 is the Poisson process. Fewer are a prefix of more. Raises TraceError on bad values.
    """
    size = whole_number("trace.requests", count, 1, MAX_ROWS)
    shape = gamma_shape(positive_number("gap_cv", gap_cv))
    first = generator.random() * generator.standard_gamma(shape + 1.0) / shape
    gaps = generator.standard_gamma(shape, size=size - 1) / shape
    return np.cumsum(np.concatenate(([first], gaps)))


def profile_arrivals_ns(operational: Floats, profile: RateProfile) -> NDArray[np.int64]:
    """When ``profile`` has reached each operational time: arrivals in ns from the run's start, never falling.

    Raises TraceError when the last lies more than 31 years on.
    """
    times_s = profile.times_s(operational)
    if not times_s[-1] <= LONGEST_S:
        raise TraceError(
            f"the rates spread {len(operational)} requests over more than 31 years: write a larger"
            " trace.rate_per_s or trace.utilization"
        )
    # Within one piece rounding may turn two neighbours round by a nanosecond.
    return np.maximum.accumulate(np.rint(times_s * NS_PER_S).astype(np.int64))


def gamma_shape(gap_cv: float) -> float:
    """Of the Gamma distribution with this CV; TraceError outside 0.001 to 1000."""
    if not 1e-3 <= gap_cv <= 1e3:
        raise TraceError(f"gap_cv={gap_cv!r} is out of range: write a value from 0.001 to 1000")
    return float(gap_cv**-2)


def renewal_ns(seed: int, name: str, requests: int, profile: RateProfile, gap_cv: float) -> NDArray[np.int64]:
    """``requests`` arrivals along ``profile`` from the stream ``name``; see ``operational_times``."""
    return profile_arrivals_ns(operational_times(stream(seed, f"{name}/gaps"), requests, gap_cv), profile)


def poisson_ns(seed: int, name: str, requests: int, rate_per_s: float = 1.0) -> NDArray[np.int64]:
    """Poisson arrivals."""
    return renewal_ns(seed, name, requests, constant(rate_per_s), 1.0)


def gamma_ns(
    seed: int, name: str, requests: int, rate_per_s: float = 1.0, gap_cv: float = 4.0
) -> NDArray[np.int64]:
    """Gamma gaps: ``gap_cv`` above 1 is bursty, below 1 more even than Poisson."""
    return renewal_ns(seed, name, requests, constant(rate_per_s), gap_cv)


def on_off_ns(
    seed: int,
    name: str,
    requests: int,
    *,
    rate_per_s: float = 1.0,
    on_s: float = 10.0,
    off_s: float = 30.0,
    off_to_on: float = 0.0,
    spells: str = "exponential",
    gap_cv: float = 1.0,
) -> NDArray[np.int64]:
    """Bursts and spells. rate_per_s: the long-run mean. off_to_on: the rate between bursts by that in them.

    on_s, off_s: mean length of a burst and of the spell after it. spells: ``exponential`` or ``fixed``.
    """
    mean, on, off = (
        positive_number(k, v) for k, v in (("rate_per_s", rate_per_s), ("on_s", on_s), ("off_s", off_s))
    )
    ratio = number_within("off_to_on", off_to_on, 0, 1)
    on_per_s = mean * (on + off) / (on + ratio * off)
    times = operational_times(stream(seed, f"{name}/gaps"), requests, gap_cv)
    if spells == "fixed":
        return profile_arrivals_ns(times, on_off_fixed(on_per_s, on_per_s * ratio, on, off))
    if spells != "exponential":
        raise TraceError(f"spells={spells!r} is unknown: write exponential or fixed")
    cover = float(times[-1])
    if cover > _MOST_CYCLES * mean * (on + off):
        raise TraceError(
            f"on_s={on:g} and off_s={off:g} are too short for {requests} requests at {mean:g} per second:"
            f" write longer ones (at most {_MOST_CYCLES} bursts are drawn)"
        )
    spans = stream(seed, f"{name}/spells")
    return profile_arrivals_ns(
        times, on_off(on_per_s, off_per_s=on_per_s * ratio, on_s=on, off_s=off, generator=spans, cover=cover)
    )


def onsets_ns(
    seed: int,
    name: str,
    requests: int,
    *,
    base_rate_per_s: float = 1.0,
    onset_times_s: str = ONSET_TIMES_S,
    factor: float = 5.0,
    ramp_s: float = 2.0,
    hold_s: float = 20.0,
    decay_s: float = 20.0,
    gap_cv: float = 1.0,
) -> NDArray[np.int64]:
    """Sudden bursts. base_rate_per_s: between them. onset_times_s: when they begin, such as 5+65."""
    times_s = seconds_of("onset_times_s", onset_times_s)
    return renewal_ns(
        seed,
        name,
        requests,
        onsets(
            base_rate_per_s, times_s=times_s, factor=factor, ramp_s=ramp_s, hold_s=hold_s, decay_s=decay_s
        ),
        gap_cv,
    )


def diurnal_ns(
    seed: int,
    name: str,
    requests: int,
    *,
    rate_per_s: float = 1.0,
    peak_to_mean: float = 1.5,
    period_s: float = 86_400.0,
    peak_at_s: float = 43_200.0,
    gap_cv: float = 1.0,
) -> NDArray[np.int64]:
    """Days: a sinusoid around ``rate_per_s``, highest at ``peak_at_s`` and again every ``period_s``."""
    return renewal_ns(seed, name, requests, diurnal(rate_per_s, peak_to_mean, period_s, peak_at_s), gap_cv)


PROCESSES: Final[dict[str, Callable[..., NDArray[np.int64]]]] = {
    "poisson": poisson_ns,
    "gamma": gamma_ns,
    "on_off": on_off_ns,
    "onsets": onsets_ns,
    "diurnal": diurnal_ns,
}
"""name -> function(seed, stream name, requests, its own parameters) -> arrivals, ns from the run's start."""


def seconds_of(key: str, text: str) -> tuple[float, ...]:
    """The times in a text such as ``5+65+125``; none in an empty one. Raises TraceError naming ``key``."""
    try:
        return tuple(float(part) for part in str(text).split("+") if part.strip())
    except ValueError as error:
        raise TraceError(f"{key}={text!r} is no list of seconds: write for example {key}=5+65+125") from error
