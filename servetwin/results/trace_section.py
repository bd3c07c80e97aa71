"""The requests in a summary: their source, changes to them, and their rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servetwin.assemble.expected_outputs import expected_labels
from servetwin.assemble.lengths import LengthLimits, context_labels, truncated
from servetwin.assemble.shared_prefixes import shares_prefixes
from servetwin.assemble.workload import unused
from servetwin.config.config import RunConfig
from servetwin.config.trace_config import TraceConfig
from servetwin.results.metrics import NS_PER_S, RunMetrics, per_s
from traces.columns import numbers
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np


def trace_section(
    config: RunConfig, workload: Workload, limits: LengthLimits, hosted: int, capacity: float
) -> dict[str, Any]:
    """Return the section. ``mean_rate_per_s`` is the trace's; a closed loop ignores it and has none."""
    ended = truncated(config, workload, limits)
    return {
        "name": workload.name,
        "source": workload.source,
        "labels": [
            *workload.labels,
            *unused(workload, hosted, shares_prefixes(config, workload)),
            *expected_labels(config, workload, limits),
            *context_labels(config, workload, limits),
        ],
        "dropped": dict(sorted(workload.dropped.items())),
        "truncated_outputs": sum(ended.values()),
        "truncated_reasons": ended,
        "mean_rate_per_s": workload.mean_rate_per_s if config.trace.clients is None else None,
        "capacity_req_per_s": capacity,
    }


def clients_section(
    trace: TraceConfig, metrics: RunMetrics, columns: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return how fast a closed loop's clients sent, served or not; empty for an open loop."""
    if trace.clients is None:
        return {}
    served, unserved = columns["arrival_ns"], numbers(metrics.unserved.columns())["arrival_ns"]
    count = len(served) + len(unserved)
    last_ns = max((int(sent.max()) for sent in (served, unserved) if len(sent)), default=0)
    if trace.warmup_requests:
        last_ns -= min((int(sent.min()) for sent in (served, unserved) if len(sent)), default=0)
    return {
        "clients": {
            "count": trace.clients,
            "think_s": trace.client_think_s,
            "start_s": trace.client_start_s,
            "sent_req_per_s": per_s(count - 1, last_ns / NS_PER_S),
        }
    }
