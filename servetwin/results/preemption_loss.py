"""The cost of preemptions: the time from each until its KV is back, recomputed or copied."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from serving.engine.engine import Engine

NS_PER_MS = 1e6


def add_preemption_loss(
    summary: dict[str, Any],
    columns: dict[str, np.ndarray],
    losses_ns: Mapping[int, int],
    requests: np.ndarray | None = None,
) -> None:
    """Add ``preemption_loss_ms`` to summary.json, over all finished requests, and to each, as a column.

    Adds nothing to a run without preemptions. ``requests``: the number of each in ``losses_ns``; None: as in
    ``columns``.
    """
    if losses_ns and len(columns["request"]):
        numbers = columns["request"] if requests is None else requests
        losses = [losses_ns.get(request, 0) for request in numbers.tolist()]
        columns["preemption_loss_ms"] = loss_ms = np.array(losses, dtype=float) / NS_PER_MS
        p99 = float(np.quantile(loss_ms, 0.99))
        summary["preemption_loss_ms"] = {
            "mean": float(loss_ms.mean()),
            "p99": p99,
            "max": float(loss_ms.max()),
        }


def swaps_section(engines: Iterable[Engine]) -> dict[str, Any]:
    """Return ``swaps`` of summary.json; empty without swap space.

    It has the number of preempted requests whose KV went to host memory, the number of those that found it
    full, and the time that passes waited for copies, summed over all instances.
    """
    hosts = [engine.host for engine in engines if engine.host.blocks]
    if not hosts:
        return {}
    waited_s = sum([host.waited_ns for host in hosts]) / 1e9
    out, full = sum([host.out for host in hosts]), sum([host.full for host in hosts])
    return {"swaps": {"out": out, "host_full": full, "waited_s": waited_s}}
