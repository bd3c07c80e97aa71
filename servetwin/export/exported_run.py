"""A run as it is exported: its finished requests as arrays, and its counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from servetwin.compare.own_result import Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MS_PER_S = 1e3
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """Finished requests in order of arrival; milliseconds, and NaN for TPOT of a request of one token.

    ``start_s`` counts from the first arrival. ``unanswered``: requests that arrived and did not finish.
    """

    start_s: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    unanswered: int
    duration_s: float

    @property
    def count(self) -> int:
        """Finished requests."""
        return len(self.start_s)

    def per_s(self, total: float) -> float:
        """Over the run's duration; 0 of a run that took no time."""
        return total / self.duration_s if self.duration_s else 0.0


def exported_run(result: Result) -> ExportedRun:
    """The requests of a result folder."""
    import numpy as np

    columns = {name: np.asarray(values, dtype=np.float64) for name, values in result.columns.items()}
    order = np.argsort(columns["arrival_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    arrival_s, counts = columns["arrival_ns"] / NS_PER_S, result.summary["requests"]
    return ExportedRun(
        start_s=arrival_s - arrival_s[0] if len(arrival_s) else arrival_s,
        ttft_ms=columns["ttft_ms"],
        tpot_ms=columns["tpot_ms"],
        e2e_ms=columns["e2e_ms"],
        prompt_tokens=columns["prompt_tokens"],
        output_tokens=columns["output_tokens"],
        unanswered=counts["arrived"] - counts["finished"],
        duration_s=float(result.summary["duration_s"]),
    )
