"""Clients that gave up: the section of summary.json, and the columns of requests that were sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servetwin.config.trace_config import TraceConfig
from servetwin.results.metrics import NS_PER_MS, spread
from simcore.client_timeouts import ClientTimeouts

if TYPE_CHECKING:
    import numpy as np


def add_attempts(clients: ClientTimeouts, columns: dict[str, np.ndarray]) -> None:
    """Add to each answered request how often it was sent again, and the time since it was first sent."""
    import numpy as np

    requests, sent_ns = columns["request"].tolist(), columns["arrival_ns"]
    first_ns = [clients.first_sent_ns.get(request, sent) for request, sent in zip(requests, sent_ns.tolist())]
    columns["retry"] = np.array([clients.attempts.get(one, 0) for one in requests], dtype=np.int64)
    waited_ns = sent_ns - np.array(first_ns, dtype=np.int64)
    columns["e2e_with_retries_ms"] = columns["e2e_ms"] + waited_ns / NS_PER_MS


def attempts_of(columns: Mapping[str, np.ndarray], requests: int) -> np.ndarray:
    """Return, for each answered request, the number of the attempt that was answered."""
    numbers: np.ndarray = columns["request"]
    return numbers + columns["retry"] * requests if "retry" in columns else numbers


def repeated(clients: ClientTimeouts | None) -> int:
    """Return how many more requests came to the controller than the trace has."""
    return 0 if clients is None else clients.counts.retries - clients.counts.on_the_way


def client_timeouts_section(
    trace: TraceConfig, clients: ClientTimeouts | None, columns: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return ``client_timeouts`` of summary.json; empty if clients wait for ever."""
    if clients is None:
        return {}
    counts = clients.counts
    return {
        "client_timeouts": {
            "timeout_s": trace.client_timeout_s,
            "retries_allowed": trace.retries,
            "retry_wait_s": trace.retry_wait_s,
            "time_outs": counts.time_outs,
            "on_the_way_in": counts.on_the_way,
            "answered_too_late": counts.too_late,
            "retries": counts.retries,
            "given_up": counts.given_up,
            "served_after_retries": int((columns["retry"] > 0).sum()),
            "wasted_tokens": counts.wasted_tokens,
            "e2e_with_retries_ms": spread(columns["e2e_with_retries_ms"]),
        }
    }
