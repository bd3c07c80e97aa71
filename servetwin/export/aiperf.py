"""AIPerf: ``profile_export_aiperf.json`` (statistics) and ``profile_export.jsonl`` (a line per request).

Names, units and fields as in "profile_export_aiperf.json Schema" and "Metrics Reference" of AIPerf 0.13
(docs.nvidia.com/aiperf).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from servetwin.export.exported_run import MS_PER_S, NS_PER_S, ExportedRun, Unserved

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PERCENTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def statistics(run: ExportedRun) -> str:
    """The JSON document with a block of statistics per metric."""
    prompt, output = float(run.prompt_tokens.sum()), float(run.output_tokens.sum())
    decoded = run.tpot_ms[run.tpot_ms > 0]
    metrics = {
        "request_latency": _spread(run.e2e_ms, "ms"),
        "time_to_first_token": _spread(run.ttft_ms, "ms"),
        "inter_token_latency": _spread(run.tpot_ms, "ms"),
        "output_token_throughput_per_user": _spread(MS_PER_S / decoded, "tokens/sec/user"),
        "input_sequence_length": _spread(run.prompt_tokens, "tokens"),
        "output_sequence_length": _spread(run.output_tokens, "tokens"),
        "request_throughput": _single(run.per_s(run.count), "requests/sec"),
        "output_token_throughput": _single(run.per_s(output), "tokens/sec"),
        "total_token_throughput": _single(run.per_s(prompt + output), "tokens/sec"),
        "request_count": _single(run.count, "requests"),
        "error_request_count": _single(run.unanswered, "requests"),
        "benchmark_duration": _single(run.duration_s, "sec"),
    }
    return json.dumps({name: block for name, block in metrics.items() if block}, indent=1) + "\n"


def records(run: ExportedRun) -> str:
    """A line per request in order of arrival, also of one without an answer."""
    served = ((int(run.request[place]), _record(run, place)) for place in range(run.count))
    failed = ((request.request, _failure(request)) for request in run.unserved)
    lines = sorted([*served, *failed], key=lambda line: (line[1]["metadata"]["request_start_ns"], line[0]))
    return "".join(json.dumps(line) + "\n" for _, line in lines)


def _record(run: ExportedRun, place: int) -> dict[str, Any]:
    values = {
        "time_to_first_token": (run.ttft_ms, "ms"),
        "inter_token_latency": (run.tpot_ms, "ms"),
        "request_latency": (run.e2e_ms, "ms"),
        "input_sequence_length": (run.prompt_tokens, "tokens"),
        "output_sequence_length": (run.output_tokens, "tokens"),
    }
    metrics = {}
    for name, (column, unit) in values.items():
        value = float(column[place])
        if value == value:
            metrics[name] = {"value": int(value) if unit == "tokens" else value, "unit": unit}
    return {"metadata": _metadata(float(run.start_s[place])), "metrics": metrics, "error": None}


def _failure(request: Unserved) -> dict[str, Any]:
    length = {"value": request.prompt_tokens, "unit": "tokens"}
    return {
        "metadata": _metadata(request.start_s),
        "metrics": {"input_sequence_length": length},
        "error": {"message": request.why},
    }


def _metadata(start_s: float) -> dict[str, Any]:
    return {"request_start_ns": round(start_s * NS_PER_S), "benchmark_phase": "profiling"}


def _single(value: float, unit: str) -> dict[str, Any]:
    return {"unit": unit, "avg": value}


def _spread(values: NDArray[np.float64], unit: str) -> dict[str, Any]:
    """Without requests no block, as AIPerf writes none."""
    import numpy as np

    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    percentiles = {f"p{part}": float(np.percentile(known, part)) for part in _PERCENTILES}
    ends = {"avg": float(known.mean()), "min": float(known.min()), "max": float(known.max())}
    spread = {"std": float(known.std(ddof=1))} if len(known) > 1 else {}
    return {"unit": unit, **ends, **percentiles, **spread, "count": len(known), "sum": float(known.sum())}
