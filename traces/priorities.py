"""Which requests have a high priority, where a trace does not say."""

from __future__ import annotations  # numpy.random is loaded only where something is drawn

import numpy as np

from traces.errors import TraceError
from traces.streams import stream
from traces.workload import Workload

HIGH = 1


def with_high_priority(workload: Workload, share: float, seed: int) -> Workload:
    """Each request has priority 1 with this chance, by a stream of its own, else 0. Raises TraceError."""
    if not 0 <= share <= 1:
        raise TraceError(f"trace.high_priority_share={share:g} is not a share: write a number from 0 to 1")
    if workload.priority is not None and workload.priority.any():
        raise TraceError(
            f"{workload.name} already has priorities: leave trace.high_priority_share={share:g} out"
        )
    drawn = stream(seed, "priorities/high").random(len(workload)) < share
    label = f"{drawn.sum()} of {len(workload)} requests drawn to have a high priority (seed {seed})"
    return workload.labelled(label, priority=np.where(drawn, HIGH, 0))
