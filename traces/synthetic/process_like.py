"""Synthetic workloads that are chosen by their arrival process. Prompt and output lengths are drawn from
tables, independently of each other and of the arrivals.

Arguments of several functions: requests: number of requests. duration_s: if above 0, requests that would
arrive later are left out. A trace ends at whichever of the two ends comes first; with ``duration_s`` alone it
has all requests up to then, with neither of them ``DEFAULT_REQUESTS``. gap_cv: coefficient of variation of
the Gamma gaps between arrivals; 1 gives Poisson arrivals. lengths: the name of a pair of length tables
(``LENGTH_PAIRS``), two tables such as ``burstgpt_in+short``, or fixed tokens such as ``512x128``. rates:
stages with rates of their own in place of ``rate_per_s`` (``rate_words``); the trace ends with the last one,
or after ``requests`` if that comes first.
"""

from dataclasses import replace
from typing import Any, Final

from traces.synthetic.arrivals import ONSET_TIMES_S, PROCESSES
from traces.synthetic.drawn import drawn_to_the_end, drawn_workload
from traces.synthetic.expected import EXPECTED
from traces.synthetic.rate_stages import staged_ns
from traces.synthetic.rate_words import stages_of
from traces.workload import Workload

_LABEL: Final = "synthetic: {} arrivals, lengths independent"


def poisson(
    seed: int = 0,
    requests: int | None = None,
    rate_per_s: float = 1.0,
    lengths: str = "sharegpt",
    *,
    rates: str | None = None,
) -> Workload:
    """Poisson arrivals with mean ``rate_per_s``. lengths: see ``length_tables.length_pair``."""
    if rates is not None:
        return _draw_stages("poisson", seed, requests, rates=rates, lengths=lengths, own={})
    return _draw_workload(
        "poisson",
        seed=seed,
        requests=requests,
        lengths=lengths,
        duration_s=0.0,
        own={"rate_per_s": rate_per_s},
    )


def gamma(
    seed: int = 0,
    requests: int | None = None,
    rate_per_s: float = 1.0,
    gap_cv: float = 4.0,
    lengths: str = "sharegpt",
    *,
    rates: str | None = None,
) -> Workload:
    """Stationary arrivals with Gamma gaps. gap_cv: their coefficient of variation, 1 is Poisson."""
    if rates is not None:
        return _draw_stages("gamma", seed, requests, rates=rates, lengths=lengths, own={"gap_cv": gap_cv})
    return _draw_workload(
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

    A spell is the time between two bursts. on_s: mean length of a burst. off_s: mean length of a spell.
    off_to_on: arrival rate in a spell divided by the rate in a burst, 0 to 1. spells: ``exponential`` if the
    lengths of bursts and spells are drawn from an exponential law, ``fixed`` if each has its mean length.
    """
    own: dict[str, Any] = {"rate_per_s": rate_per_s, "on_s": on_s, "off_s": off_s, "off_to_on": off_to_on}
    return _draw_workload(
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

    The rate stays high for ``hold_s``, then falls back to the base rate within ``decay_s``.
    onset_times_s: times in seconds as a text, such as ``5+65+125``.
    """
    own: dict[str, Any] = {
        "base_rate_per_s": base_rate_per_s,
        "onset_times_s": onset_times_s,
        "factor": factor,
        "ramp_s": ramp_s,
    }
    own |= {"hold_s": hold_s, "decay_s": decay_s, "gap_cv": gap_cv}
    return _draw_workload(
        "onsets", seed=seed, requests=requests, lengths=lengths, duration_s=duration_s, own=own
    )


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

    peak_to_mean: the highest rate divided by the mean rate, 1 to 2.
    """
    own: dict[str, Any] = {"rate_per_s": rate_per_s, "peak_to_mean": peak_to_mean, "period_s": period_s}
    own |= {"peak_at_s": peak_at_s, "gap_cv": gap_cv}
    return _draw_workload(
        "diurnal", seed=seed, requests=requests, lengths=lengths, duration_s=duration_s, own=own
    )


def _draw_stages(
    name: str, seed: int, requests: int | None, *, rates: str, lengths: str, own: dict[str, float]
) -> Workload:
    """Draw the process ``name`` along stages of rates, from the streams of its constant rate."""
    stages = stages_of(rates)
    arrival_ns = staged_ns(seed, f"{name}/arrivals", requests, stages, own.get("gap_cv", 1.0))
    parameters = {"requests": requests, "rates": rates, **own, "lengths": lengths}
    label = f"synthetic: {name} arrivals in stages of rates, lengths independent"
    workload = drawn_workload(
        name, seed, arrival_ns=arrival_ns, lengths=lengths, label=label, parameters=parameters
    )
    return replace(workload, labels=(*workload.labels, *stages.labels))


def _draw_workload(
    name: str, *, seed: int, requests: int | None, lengths: str, duration_s: float, own: dict[str, Any]
) -> Workload:
    """Draw the workload of the arrival process ``name``. own: the arguments of this process alone."""
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
