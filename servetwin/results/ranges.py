"""Lowest and highest value of a run and its two ends, per metric, and whether an answer flips between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from servetwin.results.metrics import QUANTILES

LATENCIES: Final = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
STATISTICS: Final = ("mean", *QUANTILES, "max")
METRICS: Final = (
    *(f"{latency}.{statistic}" for latency in LATENCIES for statistic in STATISTICS),
    *(f"ttft_engine_ms.{statistic}" for statistic in STATISTICS),
    "throughput.req_per_s",
    "throughput.output_tokens_per_s",
    "slo.ttft_attainment",
    "slo.tpot_attainment",
    "slo.attainment",
    "slo.goodput_req_per_s",
    "requests.finished",
)
NOT_AN_INTERVAL: Final = (
    "lowest and highest of three runs with the same arrivals: as the model says, all step times at the low "
    "end of their error with the most KV memory, all at the high end with the least; a range and no "
    "interval: where a system scales, what lies between the ends may be outside of it"
)


def value_of(summary: Mapping[str, Any], metric: str) -> float | None:
    """Return a number by its dotted name, ``ttft_ms.p99`` or ``gpu_seconds``; None if it is missing."""
    value: Any = summary
    for part in metric.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int | float) else None


def ranges_of(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Map metric to [lowest, highest] over ``summaries``, without metrics that one of them lacks."""
    ranges: dict[str, list[float]] = {}
    for metric in METRICS:
        values = [value_of(summary, metric) for summary in summaries]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            ranges[metric] = [min(known), max(known)]
    return ranges


def range_in(summary: Mapping[str, Any], metric: str) -> tuple[float, float] | None:
    """Return the metric's range in a summary; None if the run had no ends."""
    ranges = summary.get("range")
    pair = ranges.get(metric) if isinstance(ranges, Mapping) else None
    return (pair[0], pair[1]) if isinstance(pair, Sequence) and len(pair) == 2 else None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer to one question with step times at the low end, in the middle, and at the high end.

    Answers may be anything that can be compared: a number of GPUs, the better of two systems, yes or no.
    """

    low: Any
    mid: Any
    high: Any

    @property
    def flips(self) -> bool:
        """Whether the answer at an end differs from the middle's."""
        return not self.low == self.mid == self.high

    def told(self, question: str) -> str:
        """Return the answer as one sentence."""
        if not self.flips:
            return f"{question}: {self.mid}, at both ends of the range too"
        ends = {"low": self.low, "high": self.high}
        differing = [
            f"{answer} with all step times at their {end} end"
            for end, answer in ends.items()
            if answer != self.mid
        ]
        return f"{question}: {self.mid}, but {' and '.join(differing)}: the answer flips inside the range"


def flips(low: Any, mid: Any, high: Any) -> bool:
    """Return whether a comparison's or search's answer depends on where in the range the step times are."""
    return Answers(low, mid, high).flips
