"""Numbers of a run of stages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.common.outcomes import Metric, RunOutcome, summary_metric

LATENCY = summary_metric("mean latency", "ms", "e2e_ms.mean")
P50 = summary_metric("P50 latency", "ms", "e2e_ms.p50")
P75 = Metric("P75 latency", "ms", "requests", lambda run: quantile_ms(run, 75.0))
P90 = summary_metric("P90 latency", "ms", "e2e_ms.p90")
P99 = summary_metric("P99 latency", "ms", "e2e_ms.p99")


def quantile_ms(outcome: RunOutcome, percent: float) -> float | None:
    """Return a percentile of the latencies of finished requests, which have one answer each."""
    return float(np.percentile(outcome.ttft_ms, percent)) if len(outcome.ttft_ms) else None


def of_stages(outcome: RunOutcome, key: str) -> list[float]:
    """A number of every stage, in order."""
    rows: Sequence[Mapping[str, Any]] = outcome.summary["stages"]
    return [float(row[key]) for row in rows]


def within(outcome: RunOutcome, exec_s: float, times: float) -> float:
    """Return the share of all requests that are answered within ``times`` times the execution time."""
    arrived = outcome.at("requests.arrived") or 0.0
    return float(np.count_nonzero(outcome.ttft_ms <= times * exec_s * 1e3)) / arrived


def satisfied(exec_s: float, times: float) -> Metric:
    """Return the share of requests that meet the objective of ``times`` times the execution time."""
    return Metric(
        f"requests within {times:g} times the execution time",
        "",
        "requests",
        lambda run: within(run, exec_s, times),
    )


def goodput(exec_s: float, times: float) -> Metric:
    """Return the requests that meet this objective, per second of the run."""

    def read(run: RunOutcome) -> float | None:
        duration_s, arrived = run.at("duration_s"), run.at("requests.arrived")
        return None if not duration_s or not arrived else within(run, exec_s, times) * arrived / duration_s

    return Metric(f"goodput within {times:g} times the execution time", "requests/s", "duration_s", read)


QUEUE = Metric(
    "mean queue of all stages", "requests", "stages", lambda run: float(sum(of_stages(run, "queue_mean")))
)
