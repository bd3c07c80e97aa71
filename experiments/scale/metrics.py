"""Numbers of a run that the study shows."""

from typing import Final

from experiments.common.outcomes import Metric, RunOutcome, summary_metric

KINDS: Final = {
    "ssd": "use of SSDs", "pcie": "use of PCIe", "nvlink": "use of NVLink", "nic": "use of NICs",
}  # fmt: skip


def _ttft_s(outcome: RunOutcome) -> float | None:
    value_ms = outcome.at("ttft_ms.p99")
    return None if value_ms is None else value_ms / 1e3


def _gpu_hours(outcome: RunOutcome) -> float | None:
    held_s = outcome.at("gpu_seconds")
    return None if held_s is None else held_s / 3600


def _per_1000(outcome: RunOutcome) -> float | None:
    hours, requests = _gpu_hours(outcome), outcome.at("requests.arrived")
    return 1000 * hours / requests if hours is not None and requests else None


SERVED: Final[dict[str, Metric]] = {
    "within objectives": summary_metric("requests within the objectives", "", "slo.attainment"),
    "P99 TTFT, s": Metric("P99 TTFT", "s", "ttft_ms.p99", _ttft_s),
    "GPU-hours per 1,000 requests": Metric("GPU-hours per 1,000 requests", "h", "gpu_seconds", _per_1000),
    "time to capacity, s": summary_metric("mean time to capacity", "s", "capacity_s.mean"),
}
"""What is drawn of every cell."""
BESIDE: Final[dict[str, Metric]] = {
    "requests": summary_metric("requests", "", "requests.arrived"),
    "GPU-hours": Metric("GPU-hours held", "h", "gpu_seconds", _gpu_hours),
    "longest time to capacity, s": summary_metric("longest time to capacity", "s", "capacity_s.max"),
}
"""What points.csv has beside it."""
COLUMNS: Final[dict[str, Metric]] = {
    "requests": BESIDE["requests"],
    "within": SERVED["within objectives"],
    "TTFT P99 s": SERVED["P99 TTFT, s"],
    "GPU-h": BESIDE["GPU-hours"],
    "per 1,000": SERVED["GPU-hours per 1,000 requests"],
    "capacity s": SERVED["time to capacity, s"],
    "longest s": BESIDE["longest time to capacity, s"],
}
"""Columns of the table."""
LINKS: Final[dict[str, Metric]] = {
    name: summary_metric(f"mean {name}", "", f"network.{kind}.mean_share") for kind, name in KINDS.items()
}
BUSIEST: Final[dict[str, Metric]] = {
    name: summary_metric(f"{name}, the busiest", "", f"network.{kind}.max_share")
    for kind, name in KINDS.items()
}
"""Shares of what the links could have carried in the run: of all of a kind, and of the busiest one."""
