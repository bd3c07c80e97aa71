"""Workloads of many models: their popularity, and requests that each belong to one of them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, short_number, whole_number
from traces.columns import Names
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import operational_times, profile_arrivals_ns
from traces.synthetic.drawn import DEFAULT_REQUESTS, count_of, drawn_workload
from traces.synthetic.rate_profile import Floats, constant
from traces.workload import Workload

MOST_MODELS: Final = 100_000
_LABEL: Final = "synthetic: {} models, Zipf {}, each its own bursty process, lengths independent"


def zipf_shares(count: int, exponent: float) -> Floats:
    """The share of each of ``count`` models, most popular first: 1 / rank**exponent, adding up to 1.

    exponent: at least 0 (all alike) and at most 10. Raises TraceError on values out of range.
    """
    ranks = np.arange(1, whole_number("models", count, 1, MOST_MODELS) + 1, dtype=np.float64)
    weights = ranks ** -number_within("exponent", exponent, 0, 10)
    return np.asarray(weights / weights.sum(), np.float64)


def with_models(workload: Workload, names: Sequence[str], exponent: float = 0.9, seed: int = 0) -> Workload:
    """The same requests, each marked with one of ``names`` at random: the first name is the most popular.

    Models it had before go. Raises TraceError without names, on a name that comes twice, or a bad exponent.
    """
    shares = zipf_shares(len(names), exponent)
    drawn = stream(seed, "with_models").random(len(workload))
    codes = np.minimum(np.searchsorted(np.cumsum(shares), drawn, side="right"), len(names) - 1)
    return workload.labelled(
        f"{len(names)} models drawn, Zipf {short_number(exponent)}", model=Names(codes, tuple(names))
    )


def zipf_mix(
    seed: int = 0,
    requests: int = DEFAULT_REQUESTS,
    rate_per_s: float = 1.0,
    *,
    models: str = "16",
    exponent: float = 0.9,
    gap_cv: float = 4.0,
    lengths: str = "sharegpt",
) -> Workload:
    """Every model has its own Gamma arrivals with ``gap_cv``; together they make ``rate_per_s``.

    models: how many (named model_00, model_01, ... by popularity) or their names with + between.
    lengths: see ``traces.synthetic.length_tables.length_pair``. Fewer requests are a prefix of more.
    Raises TraceError on bad parameters.
    """
    count, names = count_of(requests), model_names(models)
    shares = zipf_shares(len(names), exponent)
    times, codes = superposed(seed, "zipf_mix/arrivals", shares, [gap_cv] * len(names), count)
    parameters = {"requests": count, "rate_per_s": rate_per_s, "models": str(models)}
    parameters |= {"exponent": exponent, "gap_cv": gap_cv, "lengths": lengths}
    label = _LABEL.format(len(names), short_number(exponent))
    arrival_ns = profile_arrivals_ns(times, constant(rate_per_s))
    return drawn_workload(
        "zipf_mix",
        seed,
        arrival_ns=arrival_ns,
        lengths=lengths,
        label=label,
        parameters=parameters,
        model=Names(codes, names),
    )


def model_names(models: str | int) -> tuple[str, ...]:
    """The names that ``models`` says: a number of them or the names themselves, + between."""
    good = isinstance(models, str | int) and not isinstance(models, bool)
    words = [word.strip() for word in str(models).split("+")] if good else []
    if len(words) == 1 and words[0].isdecimal() and words[0].isascii() and len(words[0]) <= 9:
        count = whole_number("models", int(words[0]), 1, MOST_MODELS)
        return tuple(f"model_{index:0{len(str(count - 1))}d}" for index in range(count))
    apart = len(set(words)) == len(words) <= MOST_MODELS
    if not words or not apart or not all(word and word.split() == [word] for word in words):
        raise TraceError(
            f"models={models!r} is neither a number nor distinct names without blanks: write for example"
            " models=16 or models=small+large"
        )
    return tuple(words)


def superposed(
    seed: int, name: str, shares: Floats, gap_cvs: Sequence[float], count: int
) -> tuple[Floats, NDArray[np.int32]]:
    """The first ``count`` arrivals of many renewal processes at once: (operational times, whose they are).

    shares: of all arrivals, adding up to 1, so that one arrival is expected per unit of time. Each process
    has a stream of its own, hence one more request changes none of the earlier ones.
    """
    end = count + 6.0 * count**0.5
    while True:
        times = [
            _until(end, share, cv, seed, f"{name}/{index}")
            for index, (share, cv) in enumerate(zip(shares, gap_cvs))
        ]
        if sum(map(len, times)) >= count:
            break
        end *= 1.5
    codes = np.repeat(np.arange(len(times), dtype=np.int32), [len(own) for own in times])
    every = np.concatenate(times)
    order = np.argsort(every, kind="stable")[:count]
    return every[order], codes[order]


def _until(end: float, share: float, gap_cv: float, seed: int, name: str) -> Floats:
    """One process's arrivals before ``end``."""
    if share <= 0:
        return np.zeros(0)
    expected = end * share
    draws = int(expected + 6.0 * expected**0.5) + 2
    while True:
        times = operational_times(stream(seed, name), draws, gap_cv) / share
        if times[-1] >= end:
            return times[: int(np.searchsorted(times, end, side="left"))]
        draws *= 2
