"""The ranges of a run's numbers as text: lowest and highest beside a value, and a line at the top."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from servetwin.report.number_text import Number, duration, is_known, number, section, share
from servetwin.results.ranges import range_in, value_of

# Formats a value. Below: the metric and the format of each number that has a range.
_Writer = Callable[[Number], str]
FACTS: Final[Mapping[str, tuple[str, _Writer]]] = {
    "throughput": ("throughput.req_per_s", lambda value: f"{number(value)} req/s"),
    "output tokens": ("throughput.output_tokens_per_s", lambda value: f"{number(value)} tokens/s"),
    "SLO attainment": ("slo.attainment", share),
    "TTFT attainment": ("slo.ttft_attainment", share),
    "TPOT attainment": ("slo.tpot_attainment", share),
    "goodput": ("slo.goodput_req_per_s", lambda value: f"{number(value)} req/s"),
}
_NEAR: Final = "near saturation"
_HEAD: Final = (("TTFT p99", "ttft_ms.p99", duration), ("TPOT mean", "tpot_ms.mean", duration))


def has_range(summary: Mapping[str, Any]) -> bool:
    """Return whether the run was evaluated at the ends of its step times' error."""
    return bool(section(summary, "range"))


def range_text(summary: Mapping[str, Any], metric: str, written: _Writer) -> str:
    """Return the range, such as ``371 to 466 ms``; empty if there is none."""
    pair = range_in(summary, metric)
    if pair is None:
        return ""
    low, high = (written(value) for value in pair)
    (low_number, _, low_unit), (_, _, high_unit) = low.partition(" "), high.partition(" ")
    return f"{low_number if low_unit == high_unit else low} to {high}"


def range_head(summary: Mapping[str, Any]) -> str:
    """Return one line: two latencies with their ranges, and the ranges' sources; empty without a range."""
    latencies = range_line(summary)
    return f"{latencies}; {summary.get('range_in_short')}" if has_range(summary) and latencies else latencies


def near_saturation(summary: Mapping[str, Any]) -> str:
    """Return what the ranges' sources say of a load near saturation; empty if it is not near."""
    told = str(summary.get("range_in_short") or "")
    return told[told.find(_NEAR) :] if _NEAR in told else ""


def range_line(summary: Mapping[str, Any]) -> str:
    """Return two latencies with their ranges, or why there is no range; empty if none was asked for."""
    if refused := summary.get("range_refused"):
        return f"no range: {refused}"
    if not has_range(summary):
        return ""
    parts = [
        f"{name} {written(value_of(summary, metric))} (range {range_text(summary, metric, written)})"
        for name, metric, written in _HEAD
        if is_known(value_of(summary, metric))
    ]
    return ", ".join(parts)


def fact_range(summary: Mapping[str, Any], name: str) -> str:
    """Return the range of a number in the table of facts, by its name there."""
    return range_text(summary, *FACTS[name]) if name in FACTS else ""


def ends_of(
    summary: Mapping[str, Any], latency: str, statistics: tuple[str, ...]
) -> list[tuple[str, list[str]]]:
    """Return two rows of a latency table by statistic, lowest and highest; none without a range."""
    pairs = [range_in(summary, f"{latency}.{statistic}") for statistic in statistics]
    if not any(pairs):
        return []
    return [
        (name, [duration(None if pair is None else pair[at]) for pair in pairs])
        for at, name in enumerate(("lowest", "highest"))
    ]
