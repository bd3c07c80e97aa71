"""What the runs of a reproduction gave, by case and seed, and the numbers read from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from experiments.common.set_up import Case, Words
from experiments.common.sweep import SetUpSweep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunOutcome:
    """One run: words, summary, and three columns of its finished requests (``tpot_ms`` may be NaN).

    timelines: name -> (seconds, values), made by experiments.common.timelines. columns: further columns of
    finished requests, which the case names. wall_s: how long the run took here, 0 where that is not known.
    """

    words: Words
    summary: Mapping[str, Any]
    arrival_s: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    inputs: str
    timelines: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    columns: Mapping[str, Floats] = field(default_factory=dict)
    wall_s: float = 0.0

    def at(self, path: str) -> float | None:
        """A number of the summary, such as ``ttft_ms.p99``; None where the run has none."""
        value: Any = self.summary
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if value is None or isinstance(value, Mapping | str) else float(value)

    def mean_ttft_ms(self, from_s: float, until_s: float) -> float | None:
        """Return the mean TTFT of the requests that arrive in this interval; None if none arrives."""
        here = self.ttft_ms[(self.arrival_s >= from_s) & (self.arrival_s < until_s)]
        return float(here.mean()) if len(here) else None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of all runs. runs: case -> its runs, one per seed, in the order of the seeds.

    missing: case -> the reason why it could not be run. sweeps: the sweeps whose cases were run too.
    requests: the number of requests of each run, for papers whose runs all have the same number.
    """

    runs: Mapping[Case, tuple[RunOutcome, ...]]
    missing: Mapping[Case, str]
    sweeps: tuple[SetUpSweep, ...] = ()
    requests: int = 10_000

    def of(self, case: Case) -> tuple[RunOutcome, ...]:
        """The outcomes; none for a case that could not be run."""
        return self.runs.get(case, ())

    def why_not(self, *cases: Case) -> str:
        """Why these cannot be compared; empty when all have run."""
        return "; ".join(dict.fromkeys(self.missing[case] for case in cases if case in self.missing))


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a run. read: None where the run has none; where: what in summary.json it is made from."""

    label: str
    unit: str
    where: str
    read: Callable[[RunOutcome], float | None]

    def of(self, outcomes: Sequence[RunOutcome]) -> list[float] | None:
        """One value per seed; None when a run lacks it, or there is no run."""
        values = [self.read(outcome) for outcome in outcomes]
        known = [value for value in values if value is not None]
        return known if known and len(known) == len(values) else None


def summary_metric(label: str, unit: str, where: str) -> Metric:
    """Return the metric that reads a number of summary.json without a change."""
    return Metric(label, unit, where, lambda outcome: outcome.at(where))


def _missed(outcome: RunOutcome) -> float | None:
    hits, misses = outcome.at("cache.hits"), outcome.at("cache.misses")
    return None if not hits and not misses else (misses or 0.0) / ((hits or 0.0) + (misses or 0.0))


def _nic_share(outcome: RunOutcome) -> float | None:
    """Return the share of all loaded bytes that crossed NICs.

    The NICs of both ends count each byte, so it is half of the bytes that NICs carried.
    """
    carried = outcome.at("network.nic.bytes.parameters")
    tiers = outcome.summary.get("loads", {}).get("bytes_by_tier")
    loaded = sum(tiers.values()) if tiers else 0
    return None if carried is None or not loaded else carried / 2 / loaded


MEAN_TTFT: Final = summary_metric("mean TTFT", "ms", "ttft_ms.mean")
P99_TTFT: Final = summary_metric("P99 TTFT", "ms", "ttft_ms.p99")
MEAN_TBT: Final = summary_metric("mean TBT", "ms", "itl_ms.mean")
P99_TBT: Final = summary_metric("P99 TBT", "ms", "itl_ms.p99")
GPU_TIME: Final = summary_metric("GPU time", "GPU s", "gpu_seconds")
INSTANCES: Final = summary_metric("mean instances", "", "instances.mean")
LOADS: Final = summary_metric("loads", "", "loads.count")
LOAD_TIME: Final = summary_metric("mean load time", "s", "loads.seconds.mean")
LONGEST_LOAD: Final = summary_metric("longest load", "s", "loads.seconds.max")
CACHE_MEAN: Final = summary_metric("mean host cache", "bytes", "host_cache_bytes.mean")
CACHE_MAX: Final = summary_metric("largest host cache", "bytes", "host_cache_bytes.max")
NETWORK_MEAN: Final = summary_metric("mean use of the NICs", "", "network.nic.mean_share")
NETWORK_BYTES: Final = summary_metric("parameters through NICs", "bytes", "network.nic.bytes.parameters")
DECISIONS: Final = summary_metric("decisions", "", "decisions.count")
DECISION_P99: Final = summary_metric("P99 of a decision", "ms", "decisions.cpu_ms_p99")
NIC_SHARE: Final = Metric("loaded bytes that crossed NICs", "", "loads.bytes_by_tier", _nic_share)
MISS_RATE: Final = Metric("host-cache misses", "", "cache.hits and cache.misses", _missed)


def violations(outcome: RunOutcome, ttft_ms: float, tbt_ms: float) -> float:
    """Share of the requests that were handed over and missed an objective or have no answer."""
    late = (outcome.ttft_ms > ttft_ms) | (outcome.tpot_ms > tbt_ms)  # NaN (one token) misses nothing
    handed_over = (outcome.at("requests.arrived") or 0.0) - (outcome.at("requests.dropped") or 0.0)
    answered = len(outcome.ttft_ms)
    return (int(late.sum()) + handed_over - answered) / handed_over


# What a saved sweep has of every run.
SAVED: Final = {
    "e2e_ms_mean": summary_metric("mean latency", "ms", "e2e_ms.mean"),
    "e2e_ms_p99": summary_metric("P99 latency", "ms", "e2e_ms.p99"),
    "tpot_ms_mean": summary_metric("mean TPOT", "ms", "tpot_ms.mean"),
    "tpot_ms_p99": summary_metric("P99 TPOT", "ms", "tpot_ms.p99"),
    "preemptions": summary_metric("preemptions", "", "preemptions"),
    "preemption_loss_ms_mean": summary_metric("mean preemption loss", "ms", "preemption_loss_ms.mean"),
    "migrations": summary_metric("migrations", "", "migrations.committed"),
    "ttft_ms_mean": MEAN_TTFT,
    "ttft_ms_p99": P99_TTFT,
    "itl_ms_mean": MEAN_TBT,
    "itl_ms_p99": P99_TBT,
    "gpu_seconds": GPU_TIME,
    "instances_mean": INSTANCES,
    "loads": LOADS,
    "load_seconds_mean": LOAD_TIME,
    "load_seconds_max": LONGEST_LOAD,
    "host_cache_bytes_mean": CACHE_MEAN,
    "host_cache_bytes_max": CACHE_MAX,
    "host_cache_miss_rate": MISS_RATE,
    "nic_mean_share": NETWORK_MEAN,
    "nic_parameter_bytes": NETWORK_BYTES,
    "nic_share_of_loaded_bytes": NIC_SHARE,
}
