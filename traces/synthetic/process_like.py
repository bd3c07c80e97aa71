"""Drawn workloads named for their arrival process, with lengths from any pair of tables."""

from typing import Any, Final

from traces.synthetic.arrivals import ONSET_TIMES_S, PROCESSES
from traces.synthetic.drawn import DEFAULT_REQUESTS, drawn_to_the_end, drawn_workload
from traces.synthetic.expected import EXPECTED
from traces.workload import Workload

_LABEL: Final = "synthetic: {} arrivals, lengths independent"


def poisson(
    seed: int = 0, requests: int = DEFAULT_REQUESTS, rate_per_s: float = 1.0, lengths: str = "sharegpt"
) -> Workload:
    """Poisson arrivals with mean ``rate_per_s``. lengths: see ``length_tables.length_pair``."""
    return _drawn(
        "poisson",
        seed=seed,
        requests=requests,
        lengths=lengths,
        duration_s=0.0,
        own={"rate_per_s": rate_per_s},
    )


def gamma(
    seed: int = 0,
    requests: int = DEFAULT_REQUESTS,
    rate_per_s: float = 1.0,
    gap_cv: float = 4.0,
    lengths: str = "sharegpt",
) -> Workload:
    """Stationary arrivals with Gamma gaps. gap_cv: their coefficient of variation, 1 is Poisson."""
    return _drawn(
        "gamma",
        seed=seed,
        requests=requests,
        lengths=lengths,
        duration_s=0.0,
        own={"rate_per_s": rate_per_s, "gap_cv": gap_cv},
    )


def on_off(
    seed: int = 0,
    requests: int | None = None,
    rate_per_s: float = 1.0,
    *,
    on_s: float = 10.0,
    off_s: float = 30.0,
    off_to_on: float = 0.0,
    spells: str = "exponential",
    gap_cv: float = 1.0,
    duration_s: float = 0.0,
    lengths: str = "sharegpt",
) -> Workload:
    """Bursts and spells with the long-run mean ``rate_per_s``; the first burst begins at 0.

    on_s, off_s: mean lengths of both. off_to_on: rate between bursts over the rate in them, 0 to 1.
    spells: ``exponential`` or ``fixed`` lengths. Its end: see ``diurnal``.
    """
    own: dict[str, Any] = {"rate_per_s": rate_per_s, "on_s": on_s, "off_s": off_s, "off_to_on": off_to_on}
    return _drawn(
        "on_off",
        seed=seed,
        requests=requests,
        lengths=lengths,
        duration_s=duration_s,
        own={**own, "spells": spells, "gap_cv": gap_cv},
    )


def onsets(
    seed: int = 0,
    requests: int | None = None,
    base_rate_per_s: float = 1.0,
    *,
    onset_times_s: str = ONSET_TIMES_S,
    factor: float = 5.0,
    ramp_s: float = 2.0,
    hold_s: float = 20.0,
    decay_s: float = 20.0,
    gap_cv: float = 1.0,
    duration_s: float = 0.0,
    lengths: str = "sharegpt",
) -> Workload:
    """A base rate that rises ``factor`` fold within ``ramp_s`` at each of ``onset_times_s``.

    It holds for ``hold_s`` and falls back within ``decay_s``. onset_times_s: text such as ``5+65+125``.
    Its end: see ``diurnal``.
    """
    own: dict[str, Any] = {
        "base_rate_per_s": base_rate_per_s,
        "onset_times_s": onset_times_s,
        "factor": factor,
        "ramp_s": ramp_s,
    }
    own |= {"hold_s": hold_s, "decay_s": decay_s, "gap_cv": gap_cv}
    return _drawn("onsets", seed=seed, requests=requests, lengths=lengths, duration_s=duration_s, own=own)


def diurnal(
    seed: int = 0,
    requests: int | None = None,
    rate_per_s: float = 1.0,
    *,
    peak_to_mean: float = 1.5,
    period_s: float = 86_400.0,
    peak_at_s: float = 43_200.0,
    gap_cv: float = 1.0,
    duration_s: float = 0.0,
    lengths: str = "sharegpt",
) -> Workload:
    """A sinusoid around ``rate_per_s`` that is highest at ``peak_at_s`` and again every ``period_s``.

    peak_to_mean: 1 to 2. The trace ends with ``requests`` or, if above 0, with ``duration_s``, whichever
    comes first; with a duration and no ``requests`` it has all that come before, with neither 10,000.
    """
    own: dict[str, Any] = {"rate_per_s": rate_per_s, "peak_to_mean": peak_to_mean, "period_s": period_s}
    own |= {"peak_at_s": peak_at_s, "gap_cv": gap_cv}
    return _drawn("diurnal", seed=seed, requests=requests, lengths=lengths, duration_s=duration_s, own=own)


def _drawn(
    name: str, *, seed: int, requests: int | None, lengths: str, duration_s: float, own: dict[str, Any]
) -> Workload:
    count, (arrival_ns, _) = drawn_to_the_end(
        lambda count: (PROCESSES[name](seed, f"{name}/arrivals", count, **own), None),
        requests,
        duration_s,
        lambda end_s: EXPECTED[name](end_s, **own),
    )
    parameters = {"requests": count, **own, "lengths": lengths}
    if duration_s != 0:
        parameters["duration_s"] = duration_s
    return drawn_workload(
        name, seed, arrival_ns=arrival_ns, lengths=lengths, label=_LABEL.format(name), parameters=parameters
    )
