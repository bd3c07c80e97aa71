"""Stages of rates: the rate over time up to an end, and the arrivals drawn along it."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import short_number
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import operational_times, profile_arrivals_ns
from traces.synthetic.drawn import MOST_IN_A_DURATION
from traces.synthetic.rate_profile import Floats, RateProfile

KEY: Final = "trace.rates"
EXAMPLE: Final = f"{KEY}=[15@60s,2@60s,10@60s]"
MOST_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Stages:
    """The rate over time up to ``end_s``. labels: where the rates come from, if the words do not say it."""

    profile: RateProfile
    end_s: float
    labels: tuple[str, ...] = ()


def stages_of_pieces(pieces: list[tuple[float, float, float, float]], labels: tuple[str, ...] = ()) -> Stages:
    """The stages of pieces in order: start and end in seconds, rate at the start and at the end.

    Raises TraceError if no piece has a rate above 0.
    """
    edges, starts, ends = [0.0], list[float](), list[float]()
    for start_s, end_s, first_per_s, last_per_s in pieces:
        if start_s > edges[-1]:
            edges.append(start_s)
            starts.append(0.0)
            ends.append(0.0)
        edges.append(end_s)
        starts.append(first_per_s)
        ends.append(last_per_s)
    if not any(starts) and not any(ends):
        raise TraceError(f"{KEY}: no stage has a rate above 0: write one, such as {EXAMPLE}")
    return Stages(RateProfile(np.array(edges), np.array(starts), np.array(ends)), edges[-1], labels)


def staged_ns(seed: int, name: str, requests: int | None, stages: Stages, gap_cv: float) -> NDArray[np.int64]:
    """Arrivals in ns along the stages, from the stream ``name``; with ``requests`` no more than so many.

    gap_cv: of the gaps in operational time; 1 is Poisson in every stage. The same seed has the same
    operational times as ``arrivals.renewal_ns``. Raises TraceError if nothing arrives, or too much.
    """
    wanted = float(stages.profile.expected(np.array([stages.end_s]))[0])
    if requests is None and wanted > MOST_IN_A_DURATION:
        raise TraceError(
            f"{KEY} has more than {MOST_IN_A_DURATION} requests: write lower rates or shorter stages, or"
            " state trace.requests too"
        )
    times = _operational_until(seed, f"{name}/gaps", requests, wanted, gap_cv)
    if not len(times):
        raise TraceError(
            f"{KEY} ends before the first request arrives ({short_number(wanted)} are expected): write higher"
            " rates or longer stages"
        )
    arrival_ns = profile_arrivals_ns(times, stages.profile)
    return np.minimum(arrival_ns, round(stages.end_s * 1e9) - 1)  # rounding may put the last one at the end


def _operational_until(seed: int, name: str, requests: int | None, end: float, gap_cv: float) -> Floats:
    """The operational times before ``end``; of a longer draw, the first ones are the same."""
    count = int(end + 6.0 * max(1.0, gap_cv) * end**0.5 + 10.0) if requests is None else requests
    while True:
        times = operational_times(stream(seed, name), count, gap_cv)
        if requests is not None or times[-1] >= end:
            return times[: int(np.searchsorted(times, end))]
        count *= 2
