"""Results of each priority class, in summary.json and requests.parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from servetwin.results.metrics import spread
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

LATENCIES: Final = ("ttft_ms", "tpot_ms", "e2e_ms")


def add_priorities(
    summary: dict[str, Any], columns: dict[str, Any], workload: Workload, warmup_requests: int = 0
) -> None:
    """Add ``priorities`` to summary.json, the most urgent class first, and to each request, as a column.

    Adds nothing to a run whose requests all have one priority. ``warmup_requests``: first rows not counted.
    """
    import numpy as np

    if workload.priority is None:
        return
    classes, requests = np.unique(workload.priority[warmup_requests:], return_counts=True)
    if len(classes) < 2:
        return
    columns["priority"] = priority = workload.priority[columns["request"]]
    summary["priorities"] = [
        {
            "priority": int(number),
            "requests": int(many),
            "finished": int((priority == number).sum()),
            **{key: spread(_values_of(columns[key], priority, number)) for key in LATENCIES},
        }
        for number, many in list(zip(classes, requests))[::-1]
    ]


def _values_of(values: np.ndarray, priority: np.ndarray, chosen: int) -> np.ndarray:
    chosen_values: np.ndarray = values[priority == chosen]
    return chosen_values
