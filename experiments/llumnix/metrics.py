"""Numbers of a run under the names that the points of the paper's figures have."""

from collections.abc import Mapping
from typing import Final

from experiments.common.outcomes import Metric, RunOutcome


def _seconds(label: str, where: str) -> Metric:
    def read(outcome: RunOutcome) -> float | None:
        value_ms = outcome.at(where)
        return None if value_ms is None else value_ms / 1e3

    return Metric(label, "s", where, read)


def _loss(outcome: RunOutcome) -> float | None:
    """The mean over all requests; a run without preemptions has no such section."""
    mean_ms = outcome.at("preemption_loss_ms.mean")
    return (mean_ms or 0.0) / 1e3


METRICS: Final[Mapping[str, Metric]] = {
    "request_mean_s": _seconds("mean request latency", "e2e_ms.mean"),
    "request_p99_s": _seconds("P99 request latency", "e2e_ms.p99"),
    "prefill_mean_s": _seconds("mean prefill latency", "ttft_ms.mean"),
    "prefill_p99_s": _seconds("P99 prefill latency", "ttft_ms.p99"),
    "decode_mean_s": _seconds("mean decode latency", "tpot_ms.mean"),
    "decode_p99_s": _seconds("P99 decode latency", "tpot_ms.p99"),
    "preemption_loss_mean_s": Metric("mean preemption loss", "s", "preemption_loss_ms.mean", _loss),
}
"""Latencies in seconds: until a request's last token, until its first token, per token after the first."""


def _instances_of_reports(outcome: RunOutcome) -> float | None:
    """As the artefact averages (plot_instance): over the instances' step reports, not over time.

    A second counts as often as instances are at work in it.
    """
    if "instances" not in outcome.timelines:
        return None
    _, running = outcome.timelines["instances"]
    return float((running**2).sum() / running.sum()) if running.any() else None


INSTANCES: Final[Mapping[str, Metric]] = {
    "instances_mean": Metric(
        "mean instances by step reports", "", "instances of a second", _instances_of_reports
    ),
    "instances_time_mean": Metric(
        "mean instances over time", "", "instances.mean", lambda outcome: outcome.at("instances.mean")
    ),
}
"""The first is what the artefact prints."""
