"""How far two sets of times are apart, request by request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.agreement.runs import NS_PER_S, OurRun, RequestTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS = ("TTFT", "TPOT", "E2E")
HEAD = (
    f"| compared with | requests | preempted | {' | '.join(f'{name} worst | mean' for name in METRICS)} |",
    "|---|---|---|" + "---|---|" * len(METRICS),
)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One comparison; ``apart``: metric -> relative difference of every request that has it."""

    name: str
    requests: int
    preemptions: int
    apart: dict[str, NDArray[np.float64]]

    @property
    def worst(self) -> float:
        """Of all requests and metrics."""
        return float(max(self.apart[name].max() for name in METRICS))

    def line(self) -> str:
        """As a row of the table."""
        cells = [
            shown(value) for name in METRICS for value in (self.apart[name].max(), self.apart[name].mean())
        ]
        return f"| {self.name} | {self.requests:,} | {self.preemptions:,} | {' | '.join(cells)} |"


def shown(share: float) -> str:
    """In percent; what is less than a hundredth of one as a power of ten."""
    return f"{100 * share:.2f} %" if share >= 1e-4 else f"{100 * share:.0e} %" if share else "0"


def compare(name: str, run: OurRun, theirs: RequestTimes) -> ComparisonRow:
    """Relative to theirs."""
    jobs = run.jobs
    arrival_s = np.array([job.arrival_ns for job in jobs]) / NS_PER_S
    decoded = np.array([job.output_tokens for job in jobs]) - 1
    several = decoded > 0

    def metrics(times: RequestTimes) -> dict[str, NDArray[np.float64]]:
        tpot_s = (times.finish_s - times.first_s)[several] / decoded[several]
        return {"TTFT": times.first_s - arrival_s, "TPOT": tpot_s, "E2E": times.finish_s - arrival_s}

    mine, other = metrics(run.times), metrics(theirs)
    apart = {name: np.abs(mine[name] - other[name]) / other[name] for name in METRICS}
    return ComparisonRow(name, len(jobs), run.preemptions, apart)
