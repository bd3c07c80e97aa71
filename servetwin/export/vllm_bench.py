"""The result of ``vllm bench serve --save-result --save-detailed``, without the gaps between tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from servetwin.export.exported_run import MS_PER_S, ExportedRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def report(run: ExportedRun) -> str:
    """The JSON document."""
    prompt, output = float(run.prompt_tokens.sum()), float(run.output_tokens.sum())
    counts = {
        "duration": run.duration_s,
        "completed": run.count,
        "failed": run.unanswered,
        "total_input_tokens": int(prompt),
        "total_output_tokens": int(output),
        "request_throughput": run.per_s(run.count),
        "output_throughput": run.per_s(output),
        "total_token_throughput": run.per_s(prompt + output),
    }
    times = _times("ttft", run.ttft_ms) | _times("tpot", run.tpot_ms) | _times("e2el", run.e2e_ms)
    return json.dumps(counts | times | _lists(run)) + "\n"


def _lists(run: ExportedRun) -> dict[str, list[Any]]:
    """An entry per request in the order of sending; one without an answer has its error and no times."""
    served = zip(
        run.start_s.tolist(),
        map(int, run.request),
        map(int, run.prompt_tokens),
        map(int, run.output_tokens),
        (run.ttft_ms / MS_PER_S).tolist(),
        (run.e2e_ms / MS_PER_S).tolist(),
        [""] * run.count,
        strict=True,
    )
    failed = ((one.start_s, one.request, one.prompt_tokens, 0, 0.0, 0.0, one.why) for one in run.unserved)
    rows = [(row[0], *row[2:]) for row in sorted([*served, *failed])]
    names = ("start_times", "input_lens", "output_lens", "ttfts", "latencies", "errors")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _times(name: str, values: NDArray[np.float64]) -> dict[str, Any]:
    import numpy as np

    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    return {
        f"mean_{name}_ms": float(known.mean()),
        f"median_{name}_ms": float(np.median(known)),
        f"std_{name}_ms": float(known.std()),
        f"p99_{name}_ms": float(np.percentile(known, 99)),
    }
