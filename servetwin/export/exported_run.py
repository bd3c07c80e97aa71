"""A run as it is exported: its finished requests as arrays, and its counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from servetwin.compare.own_result import Result
from servetwin.results.parquet_file import table_of
from servetwin.run.write_results import UNSERVED_NAME

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MS_PER_S = 1e3
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Unserved:
    """A request without an answer, by its number in the workload; ``why`` in words."""

    request: int
    start_s: float
    prompt_tokens: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """Finished requests in order of arrival; milliseconds, and NaN for TPOT of a request of one token.

    ``request``: their numbers in the workload.
    ``start_s`` counts from the first arrival. ``unanswered``: requests that arrived and did not finish;
    ``unserved``: those of them that were rejected or failed, in order of arrival.
    """

    request: Floats
    start_s: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    unanswered: int
    unserved: tuple[Unserved, ...] = ()
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
    refused = _unserved(result)
    order = np.argsort(columns["arrival_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    arrival_s, counts = columns["arrival_ns"] / NS_PER_S, result.summary["requests"]
    first_s = min([*arrival_s[:1].tolist(), *(request.start_s for request in refused[:1])], default=0.0)
    warmup_s = float(result.summary.get("warmup", {}).get("seconds", 0.0))
    return ExportedRun(
        request=columns["request"],
        start_s=arrival_s - first_s,
        ttft_ms=columns["ttft_ms"],
        tpot_ms=columns["tpot_ms"],
        e2e_ms=columns["e2e_ms"],
        prompt_tokens=columns["prompt_tokens"],
        output_tokens=columns["output_tokens"],
        unanswered=counts["arrived"] - counts["finished"],
        unserved=tuple(replace(request, start_s=request.start_s - first_s) for request in refused),
        duration_s=float(result.summary["duration_s"]) - warmup_s,
    )


def _unserved(result: Result) -> list[Unserved]:
    """Return the requests in the folder's unserved.parquet, if it has one, in order of arrival."""
    path = result.folder / UNSERVED_NAME
    if not path.is_file():
        return []
    rows = table_of(path).to_pylist()
    found = [
        Unserved(
            row["request"],
            row["arrival_ns"] / NS_PER_S,
            row["prompt_tokens"],
            f"{row['outcome']}: {row['reason']}",
        )
        for row in rows
    ]
    return sorted(found, key=lambda request: (request.start_s, request.request))
