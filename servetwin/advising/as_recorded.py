"""A simulated run with as many instances as were recorded, to judge how far it resembles the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from servetwin.advising.advise_words import AdviseWords
from servetwin.advising.record import Record
from servetwin.advising.simulated import Simulated
from servetwin.advising.steps import mean, recorded_steps
from servetwin.report.number_text import duration, number

NAME: Final = "as recorded, simulated"
_BOUNDS: Final = ("size", "both", "both_min", "both_max")
# A scaler between two equal bounds changes nothing; it keeps the system that of the other runs.
_HELD: Final = "hpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """``words``: those of the run, as ``OfScaler`` has them."""

    count: int
    run: Simulated
    words: tuple[str, ...]


def count_of(record: Record) -> int:
    """Return the instances of the run: the recorded number, or its mean rounded where it varies."""
    return max(1, round(mean(recorded_steps(record), record.end_s) or 0.0))


def words_as_recorded(options: AdviseWords, count: int, cluster: Sequence[str]) -> list[str]:
    """Return the words of the run, but for its trace. ``cluster``: the words of one that was assumed."""
    bounds = tuple(f"system.instances.{name}" for name in _BOUNDS)
    return [
        *(f"{key}={text}" for key, text in options.runs.items() if key not in bounds),
        *cluster,
        f"system/scaler={_HELD}",
        "system.instances.size=full",
        *(f"{key}={count}" for key in bounds[1:]),
    ]


def told_of(record: Record, count: int) -> list[str]:
    """Return what the row is, and what it is compared with."""
    low, high = (float(find(record.serving)) for find in (np.nanmin, np.nanmax))
    held = "the recorded number"
    if low != high:
        average = mean(recorded_steps(record), record.end_s) or 0.0
        held = f"the rounded mean of {number(average)}, as the record varies from {low:.0f} to {high:.0f}"
    told = [f"{NAME}: {count} instance{'s' * (count > 1)} throughout, {held}"]
    if record.measured:
        told.append(
            f"recorded TTFT P99: {duration(record.measured['ttft_p99_ms'])}, of its whole histogram; "
            f"if '{NAME}' is far off, model, cluster, engine or lengths are not those of the service"
        )
    return told
