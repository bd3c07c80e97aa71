"""What preemptions cost requests: the time from each until its tokens are computed again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

NS_PER_MS = 1e6


def add_preemption_loss(
    summary: dict[str, Any], columns: dict[str, np.ndarray], losses_ns: Mapping[int, int]
) -> None:
    """``preemption_loss_ms`` of summary.json, over all finished requests, and of each, as a column.

    Nothing in a run that preempts nobody.
    """
    if losses_ns and len(columns["request"]):
        found = [losses_ns.get(one, 0) for one in columns["request"].tolist()]
        columns["preemption_loss_ms"] = loss_ms = np.array(found, dtype=float) / NS_PER_MS
        p99 = float(np.quantile(loss_ms, 0.99))
        summary["preemption_loss_ms"] = {
            "mean": float(loss_ms.mean()),
            "p99": p99,
            "max": float(loss_ms.max()),
        }
