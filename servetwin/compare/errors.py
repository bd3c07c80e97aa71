"""Differences between simulated and measured latencies, by metric, statistic and load regime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from servetwin.compare.measured import E2E, NS_PER_MS, QUEUE, TPOT, TTFT, MeasuredRun
from servetwin.compare.own_result import SCHEDULED, Result
from servetwin.compare.pairs import Pairs
from servetwin.results.metrics import QUANTILES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Rows = NDArray[np.bool_]

STATISTICS: Final = ("mean", *QUANTILES)
METRICS: Final = (TTFT, TPOT, E2E)
ITL: Final = "itl_ms"
PARTS: Final = ("queueing", "prefill", "decode")
LEAST_APART_MS: Final = 1e-6  # the simulation counts in ns, so means that are nearer are the same
_FIRST_PARTS: Final = "queueing and prefill"


def errors_of(result: Result, measured: MeasuredRun, pairs: Pairs, rows: Rows) -> dict[str, Any]:
    """Return errors by metric for the pairs that ``rows`` selects; without metrics that no pair has."""
    errors = {}
    for metric in METRICS:
        ours = result.columns[metric][pairs.simulated][rows].astype(np.float64)
        theirs = measured.times[metric][pairs.measured][rows]
        both = ~(np.isnan(ours) | np.isnan(theirs))
        if both.any():
            ours, theirs = ours[both], theirs[both]
            apart = float(np.abs(ours - theirs).sum())
            errors[metric] = _beside(statistics(ours), statistics(theirs), len(ours)) | {
                "per_request": apart / float(theirs.sum()) if theirs.sum() else None
            }
    return errors


def gap_errors(result: Result, measured: MeasuredRun) -> dict[str, Any] | None:
    """Return errors of single token gaps: the whole simulated run against all gaps in the file."""
    ours = result.summary[ITL]
    if not len(measured.gaps_ms) or any(ours.get(name) is None for name in STATISTICS):
        return None
    beside = _beside(
        {name: ours[name] for name in STATISTICS}, statistics(measured.gaps_ms), len(measured.gaps_ms)
    )
    return beside | {"per_request": None}


def statistics(values: Floats) -> dict[str, float]:
    """Return mean and quantiles, as in summary.json."""
    quantiles = np.quantile(values, list(QUANTILES.values()))
    return {"mean": float(values.mean())} | {
        name: float(value) for name, value in zip(QUANTILES, quantiles, strict=True)
    }


def _beside(ours: Mapping[str, float], theirs: Mapping[str, float], count: int) -> dict[str, Any]:
    error = {name: ours[name] / theirs[name] - 1 if theirs[name] else None for name in STATISTICS}
    return {"count": count, "simulated": dict(ours), "measured": dict(theirs), "error": error}


def decomposition_of(result: Result, measured: MeasuredRun, pairs: Pairs, rows: Rows) -> list[dict[str, Any]]:
    """Return mean ms of each part of the end-to-end time, and its share of the difference.

    Queueing and prefill are one part unless both sides know when a request was first scheduled.
    """
    ours, theirs = _parts(_simulated_times(result, pairs)), _parts(_measured_times(measured, pairs))
    both = rows & ~np.isnan(ours["decode"] + theirs["decode"])
    if not both.any():
        return []
    split = not np.isnan(ours["queueing"][both] + theirs["queueing"][both]).any()
    names = PARTS if split else (_FIRST_PARTS, "decode")
    entries = list[dict[str, Any]]()
    for name in names:
        mine, other = (_part(side, name)[both].mean() for side in (ours, theirs))
        entries.append({"part": name, "simulated_ms": float(mine), "measured_ms": float(other)})
    apart = sum(entry["simulated_ms"] - entry["measured_ms"] for entry in entries)
    for entry in entries:
        entry["difference_ms"] = entry["simulated_ms"] - entry["measured_ms"]
        entry["share_of_error"] = entry["difference_ms"] / apart if abs(apart) > LEAST_APART_MS else None
    return entries


def _part(side: Mapping[str, Floats], name: str) -> Floats:
    return side["first"] if name == _FIRST_PARTS else side[name]


def _parts(times: Mapping[str, Floats]) -> dict[str, Floats]:
    return {
        "first": times[TTFT],
        "queueing": times[QUEUE],
        "prefill": times[TTFT] - times[QUEUE],
        "decode": times[E2E] - times[TTFT],
    }


def _simulated_times(result: Result, pairs: Pairs) -> dict[str, Floats]:
    columns, rows = result.columns, pairs.simulated
    times = {name: columns[name][rows].astype(np.float64) for name in METRICS}
    queue = np.full(len(pairs), np.nan)
    if SCHEDULED in columns:
        waited_ns = columns[SCHEDULED][rows].astype(np.int64) - columns["arrival_ns"][rows].astype(np.int64)
        queue = waited_ns / NS_PER_MS
    return {**times, QUEUE: queue}


def _measured_times(measured: MeasuredRun, pairs: Pairs) -> dict[str, Floats]:
    return {name: values[pairs.measured] for name, values in measured.times.items()}
