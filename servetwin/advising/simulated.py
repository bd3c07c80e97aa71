"""A simulated run of a record's arrivals: how many instances a scaler would have had, acting for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwmodels.errors import HardwareError
from servetwin.advising.columns import OUTPUT, PROMPT, REQUESTS
from servetwin.advising.record import Record
from servetwin.config.config import NO_SERIES
from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S
from traces.errors import TraceError

ARRIVALS: Final = "arrivals.csv"
NUMBERS: Final = ("requests", "ttft_ms", "tpot_ms", "slo", "control", "gpu_seconds", "duration_s")
"""What of a run's summary is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """``serving``: (seconds since the start, instances that take requests from then on), ascending.

    ``numbers``: parts of summary.json. ``refused``: why there was no run; then the others are empty.
    """

    serving: tuple[tuple[float, int], ...] = ()
    numbers: Mapping[str, Any]
    refused: str = ""


def lacks_for_a_run(record: Record, has_lengths: bool) -> str:
    """Return what the record lacks for a simulated run; "" if it lacks nothing."""
    if REQUESTS not in record.columns:
        return (
            f"the record has no {REQUESTS}: add a metric of arrivals, or of finished, waiting and "
            "running requests"
        )
    if not record.mean(REQUESTS):
        return "no requests arrived"
    if not has_lengths and None in (record.mean_length(PROMPT), record.mean_length(OUTPUT)):
        return "the record has no lengths of requests: write trace.lengths=PROMPTxOUTPUT, such as 1024x256"
    return ""


def write_arrivals(record: Record, path: Path) -> None:
    """Write the rate over time as ``trace.rates`` reads it: each row's rate holds until the next row.

    The record's rate at an instant is that of the time since the instant before.
    """
    rates = np.nan_to_num(record.columns[REQUESTS])
    rows = [f"{at_s:.3f},{rate:.6g}" for at_s, rate in zip(record.since_s, rates[1:])]
    path.write_text("\n".join(["time,rate", *rows, f"{record.since_s[-1]:.3f},0", ""]), encoding="utf-8")


def trace_words(record: Record, rates: Path, lengths: str) -> list[str]:
    """Return the words of the trace. ``lengths``: the user's; "": every request has the record's means."""
    own = lengths or "x".join(
        str(max(1, round(record.mean_length(tokens) or 0.0))) for tokens in (PROMPT, OUTPUT)
    )
    return ["trace=poisson", f"trace.rates={rates}", f"trace.lengths={own}"]


def simulated(words: Sequence[str]) -> Simulated:
    """Run ``words`` (of a single run, without out=). A user error becomes ``refused``."""
    from servetwin.config.compose.compose import load_config
    from servetwin.results.control_cost import serving_changes
    from servetwin.run.simulate import execute, prepare

    try:
        prepared = prepare(replace(load_config([*words, "out=none"], "simulate"), series=NO_SERIES))
        summary = execute(prepared).summary
    except (UserError, TraceError, HardwareError) as error:
        return Simulated(numbers={}, refused=str(error))
    count, serving = len(prepared.replicas), [(0.0, len(prepared.replicas))]
    for at_s, _, change in serving_changes(_events(summary["scale_events"]), prepared.replicas):
        count += change
        serving.append((at_s, count))
    numbers: dict[str, Any] = {name: summary[name] for name in NUMBERS if name in summary}
    return Simulated(serving=tuple(serving), numbers=numbers)


def _events(rows: Sequence[Mapping[str, Any]]) -> list[ScaleEvent]:
    return [
        ScaleEvent(
            round(row["t_s"] * NS_PER_S),
            row["act"],
            row["model"],
            row["role"],
            replica=row["replica"],
            reason=row["reason"],
        )
        for row in rows
    ]
