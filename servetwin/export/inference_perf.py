"""``summary_lifecycle_metrics.json`` of inference-perf (kubernetes-sigs/inference-perf), times in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from servetwin.export.exported_run import MS_PER_S, ExportedRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PERCENTILES: Final = {
    "p0.1": 0.1, "p1": 1, "p5": 5, "p10": 10, "p25": 25, "median": 50, "p75": 75, "p90": 90, "p95": 95,
    "p99": 99, "p99.9": 99.9,
}  # fmt: skip


def summary(run: ExportedRun) -> str:
    """The JSON document."""
    prompt, output = float(run.prompt_tokens.sum()), float(run.output_tokens.sum())
    latency = {
        "request_latency": _spread(run.e2e_ms / MS_PER_S),
        "normalized_time_per_output_token": _spread(run.e2e_ms / MS_PER_S / run.output_tokens),
        "time_per_output_token": _spread(run.tpot_ms / MS_PER_S),
        "time_to_first_token": _spread(run.ttft_ms / MS_PER_S),
        "inter_token_latency": _spread(run.tpot_ms / MS_PER_S),
    }
    throughput = {
        "input_tokens_per_sec": run.per_s(prompt),
        "output_tokens_per_sec": run.per_s(output),
        "total_tokens_per_sec": run.per_s(prompt + output),
        "requests_per_sec": run.per_s(run.count),
    }
    successes = {
        "count": run.count,
        "latency": latency,
        "throughput": throughput,
        "prompt_len": _spread(run.prompt_tokens),
        "output_len": _spread(run.output_tokens),
    }
    whole = {
        "load_summary": {"count": run.count + run.unanswered, "send_duration": run.duration_s},
        "successes": successes,
        "failures": {"count": run.unanswered},
    }
    return json.dumps(whole, indent=1) + "\n"


def _spread(values: NDArray[np.float64]) -> dict[str, Any] | None:
    import numpy as np

    known = values[~np.isnan(values)]
    if not len(known):
        return None
    percentiles = {name: float(np.percentile(known, part)) for name, part in _PERCENTILES.items()}
    return {"mean": float(known.mean()), "min": float(known.min()), **percentiles, "max": float(known.max())}
