"""How far a trace's rate may be scaled so that a cluster can carry it: the rule of the BlitzScale figures.

Two terms, because a mean says nothing of a burst: the mean prompt load may be a share of what the cluster can
prefill, and the peak over a few seconds may be a share of what all instances together can prefill.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from traces.checks import positive_number
from traces.errors import TraceError
from traces.workload import NS_PER_S, Workload

PEAK_S: Final = 5.0
"""The seconds a peak is averaged over."""


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """Prompt tokens per second of a trace: over all of it, and in its busiest ``PEAK_S`` seconds."""

    mean_tokens_per_s: float
    peak_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class RateFactor:
    """The factor to scale a rate by, and which term set it. A term not asked for is None."""

    by_mean: float | None
    by_peak: float | None

    @property
    def factor(self) -> float:
        """The smaller of the terms that were asked for."""
        return min(term for term in (self.by_mean, self.by_peak) if term is not None)

    def __str__(self) -> str:
        terms = (("mean", self.by_mean), ("peak", self.by_peak))
        return ", ".join(f"by {name} {term:.4g}" for name, term in terms if term is not None)


def prompt_load(workload: Workload) -> PromptLoad:
    """Mean and peak prompt load; the peak is over every window of ``PEAK_S`` that starts at an arrival."""
    if workload.duration_s <= 0:
        raise TraceError(f"all requests of {workload.name} arrive at the same time: name a trace with a rate")
    tokens = np.concatenate(([0], np.cumsum(workload.prompt_tokens)))
    last = np.searchsorted(workload.arrival_ns, workload.arrival_ns + round(PEAK_S * NS_PER_S))
    peak = int((tokens[last] - tokens[: len(workload)]).max())
    # A shorter trace is its own busiest window; else its peak would lie below its mean.
    return PromptLoad(int(tokens[-1]) / workload.duration_s, peak / min(PEAK_S, workload.duration_s))


def rate_factor(
    load: PromptLoad,
    prefill_tokens_per_s: float,
    mean_share: float | None = 0.5,
    peak_share: float | None = 0.9,
    peak_prefill_tokens_per_s: float | None = None,
) -> RateFactor:
    """min(mean_share * capacity / mean, peak_share * peak capacity / peak), each term None if its share is.

    prefill_tokens_per_s: of the provisioned instances; peak_prefill_tokens_per_s: of all there may be
    (default: the same). Defaults of the shares: half the capacity on average (BlitzScale OSDI 2025, 6),
    nine tenths in the peak (its first version: the peak can be handled by all instances).
    """
    capacity = positive_number("prefill_tokens_per_s", prefill_tokens_per_s)
    most = capacity
    if peak_prefill_tokens_per_s is not None:
        most = positive_number("peak_prefill_tokens_per_s", peak_prefill_tokens_per_s)
    if mean_share is None and peak_share is None:
        raise TraceError("neither trace.prefill_share nor trace.peak_share is given: write one of them")
    by_mean = by_peak = None
    if mean_share is not None:
        by_mean = positive_number("trace.prefill_share", mean_share) * capacity / load.mean_tokens_per_s
    if peak_share is not None:
        by_peak = positive_number("trace.peak_share", peak_share) * most / load.peak_tokens_per_s
    return RateFactor(by_mean, by_peak)
