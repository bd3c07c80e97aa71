"""Whether a measured number is below, inside or above a run's range, by metric and statistic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from servetwin.results.ranges import LATENCIES, Answers, range_in, value_of

_JUDGED: Final = ("mean", "p50", "p90", "p99")


def inside(summary: Mapping[str, Any], errors: Mapping[str, Any]) -> dict[str, Any]:
    """Map metric to ``range``, ``measured``, ``verdict``: the run's answer to "too fast or too slow?".

    The answer is certain if both ends give the same; it flips if the measured number is inside the range.
    ``errors``: those of all requests that both sides have. Empty for a run without a range.
    """
    return dict(_judged(summary, errors))


def _judged(summary: Mapping[str, Any], errors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for latency in LATENCIES:
        for statistic in _JUDGED if latency in errors else ():
            metric = f"{latency}.{statistic}"
            pair, mid = range_in(summary, metric), value_of(summary, metric)
            measured = errors[latency]["measured"].get(statistic)
            if pair is None or mid is None or measured is None:
                continue
            answers = Answers(*(_side(value, measured) for value in (pair[0], mid, pair[1])))
            verdict = f"{answers.mid} at both ends of its range"
            if answers.flips:
                verdict = f"{answers.mid}, which flips inside its range"
            yield metric, {"range": list(pair), "measured": measured, "verdict": verdict}


def _side(simulated: float, measured: float) -> str:
    return "too fast" if simulated < measured else "too slow"
