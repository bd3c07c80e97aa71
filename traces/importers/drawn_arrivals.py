"""Arrivals drawn for files that have none."""

from dataclasses import dataclass
from pathlib import Path

from traces.checks import positive_number, short_number
from traces.errors import TraceError
from traces.streams import stream
from traces.workload import Workload


@dataclass(frozen=True, slots=True)
class Draw:
    """How the arrivals of a file without any are drawn; rate_per_s None: such a file is refused."""

    rate_per_s: float | None
    gap_cv: float
    seed: int
    reader: str

    def arrivals(self, workload: Workload, path: Path) -> Workload:
        """The workload with drawn arrivals. Raises TraceError."""
        rate = checked_rate_per_s(self.rate_per_s, path)
        return with_drawn_arrivals(
            workload, rate_per_s=rate, seed=self.seed, gap_cv=self.gap_cv, reader=self.reader
        )


def with_drawn_arrivals(
    workload: Workload, *, rate_per_s: float, seed: int, gap_cv: float, reader: str, order: str = ""
) -> Workload:
    """The workload with Gamma arrivals from 0 on, drawn from the stream ``READER/arrivals``, and a label.

    rate_per_s: as ``checked_rate_per_s`` gives it. order: said in the label after the rate.
    Raises TraceError when ``gap_cv`` or ``seed`` is out of range.
    """
    from traces.synthetic.arrivals import (
        gamma_arrivals_ns,  # late, so that reading recorded arrivals needs no drawing
    )

    rate, cv = rate_per_s, positive_number("gap_cv", gap_cv)
    drawn = gamma_arrivals_ns(stream(seed, f"{reader}/arrivals"), len(workload), rate, cv)
    bursts = "" if cv == 1.0 else f" with gap CV {short_number(cv)}"
    label = f"no arrivals in the source: drawn at {short_number(rate)}/s{bursts}{order}"
    return workload.labelled(label, arrival_ns=drawn)


def checked_rate_per_s(rate_per_s: float | None, path: Path) -> float:
    """``rate_per_s`` for a file without arrivals, if it is a number above 0; otherwise TraceError."""
    if rate_per_s is None:
        raise no_arrivals(path)
    return positive_number("trace.rate_per_s", rate_per_s)


def no_arrivals(path: Path) -> TraceError:
    """The error about a file without arrivals and without a rate."""
    return TraceError(f"{path} has no arrivals: write trace.rate_per_s= and the requests per second")
