"""Display names and units of a summary's numbers, by dotted name."""

from typing import Final

from servetwin.report.number_text import duration, number, share

_NAMES: Final = {
    "ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E",
    "slo.attainment": "SLO attainment", "slo.goodput_req_per_s": "goodput, req/s",
    "gpu_seconds": "GPU-seconds", "energy.gpu_kwh": "GPU energy, kWh",
    "energy.j_per_output_token": "joules per output token", "throughput.req_per_s": "throughput, req/s",
}  # fmt: skip


def name_of(metric: str) -> str:
    """Return the display name: ``ttft_ms.p99`` as "TTFT P99"."""
    if metric in _NAMES:
        return _NAMES[metric]
    group, _, statistic = metric.partition(".")
    if group in _NAMES:
        return f"{_NAMES[group]} {statistic.upper() if statistic[:1] == 'p' else statistic}"
    return metric


def value_text(metric: str, value: float | None) -> str:
    """Return a value in a readable unit."""
    if metric.partition(".")[0].endswith("_ms"):
        return duration(value)
    return share(value) if metric.endswith(("attainment", "share")) else number(value)
