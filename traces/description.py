"""A trace in numbers: rates, burstiness, lengths, and the senders of its requests."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.capacity import prompt_load
from traces.columns import PrefixBlocks
from traces.counts import BIN_S, CountStatistics, arrival_counts, count_statistics
from traces.sharing import shared_tokens
from traces.workload import NS_PER_S, Workload

QUANTILES: Final = {"p50": 0.5, "p80": 0.8, "p95": 0.95, "p99": 0.99}
"""Those that papers print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthStatistics:
    """Of one length column, in its own unit (tokens, pictures)."""

    mean: float
    cv: float
    p50: float
    p80: float
    p95: float
    p99: float
    largest: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """What prompts share. blocks: prefix blocks in all (0: turns of conversations are known instead).

    repeated: share of them that an earlier request had too. repeated_tokens: share of all prompt tokens that
    begin a prompt as an earlier request began: the hit rate of a cache that forgets nothing.
    """

    blocks: int
    repeated: float
    repeated_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Statistics of one workload.

    gap_cv: standard deviation over mean of the gaps between arrivals, None below three requests.
    burst_index: variance over mean of the arrivals per 10 s; 1 for Poisson, more for bursts.
    peak_per_s: most arrivals in one second (seconds counted from the first arrival).
    mean and peak prompt_tokens_per_s: over all, and in the busiest 5 s. None where all arrive at once.
    """

    name: str
    source: str
    labels: tuple[str, ...]
    dropped: dict[str, int]
    requests: int
    duration_s: float
    mean_rate_per_s: float | None
    gap_cv: float | None
    peak_per_s: int
    counts: CountStatistics
    mean_prompt_tokens_per_s: float | None
    peak_prompt_tokens_per_s: float | None
    lengths: dict[str, LengthStatistics]
    length_correlation: float | None
    models: dict[str, int]
    sessions: int
    sharing: Sharing | None

    @property
    def burst_index(self) -> float:
        """Variance over mean of the 10-s counts."""
        return self.counts.dispersion

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        from dataclasses import asdict

        return asdict(self) | {"burst_index": self.burst_index}


def describe(workload: Workload) -> Description:
    """The statistics of ``workload``."""
    load = prompt_load(workload) if workload.duration_s > 0 else None
    columns = ("prompt_tokens", "output_tokens", "max_new_tokens", "images")
    present = {name: getattr(workload, name) for name in columns}
    return Description(
        name=workload.name,
        source=workload.source,
        labels=workload.labels,
        dropped=workload.dropped,
        requests=len(workload),
        duration_s=workload.duration_s,
        mean_rate_per_s=workload.mean_rate_per_s,
        gap_cv=_gap_cv(workload.arrival_ns),
        peak_per_s=_peak_per_s(workload.arrival_ns),
        counts=count_statistics(arrival_counts(workload, BIN_S)),
        mean_prompt_tokens_per_s=None if load is None else load.mean_tokens_per_s,
        peak_prompt_tokens_per_s=None if load is None else load.peak_tokens_per_s,
        lengths={name: _lengths(values) for name, values in present.items() if values is not None},
        length_correlation=_correlation(workload.prompt_tokens, workload.output_tokens),
        models={} if workload.model is None else workload.model.counts(),
        sessions=0 if workload.session is None else len(workload.session.counts()),
        sharing=_sharing(workload),
    )


def _gap_cv(arrival_ns: NDArray[np.int64]) -> float | None:
    gaps = np.diff(arrival_ns)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.any() else None


def _peak_per_s(arrival_ns: NDArray[np.int64]) -> int:
    second = (arrival_ns - arrival_ns[0]) // NS_PER_S
    starts = np.flatnonzero(np.diff(second, prepend=-1))  # first row of every second that has any
    return int(np.diff(starts, append=len(second)).max())


def _lengths(values: NDArray[np.int64]) -> LengthStatistics:
    mean, quantiles = float(values.mean()), np.quantile(values, list(QUANTILES.values()))
    cv = float(values.std() / mean) if mean else 0.0
    named = dict(zip(QUANTILES, quantiles.tolist(), strict=True))
    return LengthStatistics(mean=mean, cv=cv, **named, largest=int(values.max()))


def _correlation(one: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    if len(one) < 3 or one.min() == one.max() or other.min() == other.max():
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _sharing(workload: Workload) -> Sharing | None:
    prefix = workload.prefix
    ids = prefix.ids if isinstance(prefix, PrefixBlocks) else ()
    if prefix is None or (isinstance(prefix, PrefixBlocks) and not len(ids)):
        return None
    repeated = 1 - len(np.unique(ids)) / len(ids) if len(ids) else 0.0
    tokens = int(shared_tokens(workload).sum()) / int(workload.prompt_tokens.sum())
    return Sharing(len(ids), repeated, tokens)
