"""Compares a run with a file of statistics alone: AIPerf's JSON and inference-perf's summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from servetwin.compare.comparison import ALL, check_provenance, inside, simulated_section
from servetwin.compare.errors import METRICS, STATISTICS, statistics
from servetwin.compare.measured import E2E, MS_PER_S, TPOT, TTFT, MeasuredStatistics, Numbers
from servetwin.compare.own_result import Result
from servetwin.compare.pairs import MOST_PROMPT_DIFFERENCE
from servetwin.compare.values import FilePlace
from serving.vocabulary.errors import UserError

BY_STATISTICS: Final = "statistics of all requests"
ALONE: Final = (
    "the file has statistics and no single requests, so nothing is paired: no load regimes, no parts of the "
    "error, and ranks may hide what differs; a file with a line per request says more"
)
_MEAN: Final = "mean"


# docs/reference/json-export-schema.md of ai-dynamo/aiperf.
_AIPERF: Final = {TTFT: "time_to_first_token", TPOT: "inter_token_latency", E2E: "request_latency"}
_AIPERF_NAMES: Final = {_MEAN: "avg"}
_AIPERF_TOKENS: Final = {"prompt_tokens": "input_sequence_length", "output_tokens": "output_sequence_length"}
# inference_perf/reportgen of kubernetes-sigs/inference-perf; seconds.
_INFERENCE_PERF: Final = {TTFT: "time_to_first_token", TPOT: "time_per_output_token", E2E: "request_latency"}
_INFERENCE_PERF_NAMES: Final = {"p50": "median"}
_INFERENCE_PERF_TOKENS: Final = {"prompt_tokens": "prompt_len", "output_tokens": "output_len"}


def aiperf(place: FilePlace, report: Any) -> dict[str, Any]:
    """Read ``profile_export_aiperf.json``, or ``profile_export_genai_perf.json`` with such blocks."""
    report = place.mapping(report, "the report")
    blocks = {metric: _block(place, report, name) for metric, name in _AIPERF.items()}
    for metric, block in blocks.items():
        if block and block.get("unit") != "ms":
            place.refuse(f"{_AIPERF[metric]} is in '{block.get('unit')}'", "export it in ms")
    return {
        "requests": _count(place, report, "request_count"),
        "failed": _count(place, report, "error_request_count"),
        "numbers": {
            metric: _numbers(place, block, _AIPERF_NAMES, 1.0) for metric, block in blocks.items() if block
        },
        "tokens": {
            column: _number(place, _block(place, report, name), "avg")
            for column, name in _AIPERF_TOKENS.items()
        },
    }


def inference_perf(place: FilePlace, report: Any) -> dict[str, Any]:
    """Read ``summary_lifecycle_metrics.json``, or that of a stage."""
    report = place.mapping(report, "the report")
    good, bad = (_block(place, report, name) for name in ("successes", "failures"))
    latency = _block(place, good, "latency")
    blocks = {metric: _block(place, latency, name) for metric, name in _INFERENCE_PERF.items()}
    return {
        "requests": place.whole(good.get("count"), "successes.count"),
        "failed": place.whole(bad.get("count"), "failures.count"),
        "numbers": {
            metric: _numbers(place, block, _INFERENCE_PERF_NAMES, MS_PER_S)
            for metric, block in blocks.items()
            if block
        },
        "tokens": {
            column: _number(place, _block(place, good, name), _MEAN)
            for column, name in _INFERENCE_PERF_TOKENS.items()
        },
    }


READERS: Final[dict[str, Callable[[FilePlace, Any], dict[str, Any]]]] = {
    "aiperf_statistics": aiperf,
    "inference_perf_summary": inference_perf,
}


def _block(place: FilePlace, report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return place.mapping(report.get(name) or {}, name)


def _count(place: FilePlace, report: Mapping[str, Any], name: str) -> int | None:
    return place.whole(_block(place, report, name).get("avg"), name)


def _number(place: FilePlace, block: Mapping[str, Any], name: str) -> float | None:
    number = place.time(block.get(name), name)
    return number if number > 0 and np.isfinite(number) else None


def _numbers(place: FilePlace, block: Mapping[str, Any], names: Mapping[str, str], unit_ms: float) -> Numbers:
    """Return each of ``STATISTICS`` in ms; None if it is not there or cannot be true."""
    found = {name: _number(place, block, names.get(name, name)) for name in STATISTICS}
    return {name: None if value is None else value * unit_ms for name, value in found.items()}


def compare_statistics(result: Result, measured: MeasuredStatistics) -> dict[str, Any]:
    """Compare; the document is that of ``compare``. UserError for another workload's file."""
    remarks = [*check_provenance(result, measured), ALONE]
    count = len(result.columns["request"])
    _check_prompts(result, measured)
    if measured.requests is None:
        remarks.append("the number of requests is not in the file, so whether it is the same was not checked")
    elif measured.requests != count:
        remarks.append(f"{measured.requests:,} requests finished in the file and {count:,} in the simulation")
    errors = {metric: _beside(result, metric, numbers) for metric, numbers in measured.numbers.items()}
    errors = {metric: entry for metric, entry in errors.items() if entry is not None}
    if not errors:
        raise UserError(f"{measured.path} has no statistic of {', '.join(METRICS)}: give a file that has one")
    whole = measured.requests == count and result.summary.get("range")
    return {
        "simulated": simulated_section(result),
        "measured": {
            "path": str(measured.path), "format": measured.format, "sha256": measured.sha256,
            "requests": measured.requests, "failed": measured.failed,
        },
        "matched": {"requests": 0, "by": BY_STATISTICS},
        "regimes": None,
        "requests": {ALL: count},
        "errors": {ALL: errors},
        **({"range": inside(result.summary, errors)} if whole else {}),
        "decomposition": {ALL: []},
        "remarks": remarks,
    }  # fmt: skip


def _check_prompts(result: Result, measured: MeasuredStatistics) -> None:
    """Refuse other prompts, by their mean."""
    theirs, ours = measured.tokens.get("prompt_tokens"), result.columns["prompt_tokens"]
    if theirs is None or not len(ours):
        return
    share = abs(float(ours.mean()) - theirs) / theirs
    if share > MOST_PROMPT_DIFFERENCE:
        raise UserError(
            f"the prompts of {measured.path} have {theirs:,.0f} tokens in the mean and those of "
            f"{result.folder} {float(ours.mean()):,.0f}: simulate the same workload"
        )


def _beside(result: Result, metric: str, theirs: Numbers) -> dict[str, Any] | None:
    ours = result.columns[metric].astype(np.float64)
    ours = ours[~np.isnan(ours)]
    if not len(ours) or all(value is None for value in theirs.values()):
        return None
    mine = statistics(ours)
    error = {name: None if value is None else mine[name] / value - 1 for name, value in theirs.items()}
    return {"count": len(ours), "simulated": mine, "measured": theirs, "error": error, "per_request": None}
