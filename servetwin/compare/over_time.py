"""Replicas, queue, running requests and KV of a run over time, by the same definitions for all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from servetwin.compare.divergence import journal_lines
from servetwin.compare.own_result import Result, columns_of
from servetwin.report.number_text import section
from servetwin.report.scaling import instance_steps
from servetwin.results.journal_file import NAME as JOURNAL_NAME
from servetwin.results.series_sink import NO_ENGINE
from servetwin.results.series_table import ENGINE, KV_GAUGE, TIME
from servetwin.run.write_results import SERIES_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# What is shown, in order, with its label.
GAUGES: Final = {
    "held": "replicas held, starting ones too",
    "serving": "replicas that serve",
    "waiting": "requests without a first token",
    "running": "requests that decode",
    "kv": "KV memory in use (1: all of one replica)",
}
_POINTS: Final = 400
_NS_PER_S: Final = 1e9
_STARTS, _STARTED = ("load", "revive"), ("ready", "revive", "released", "lost")


@dataclass(frozen=True, slots=True)
class OverTime:
    """``gauges``: by the names of ``GAUGES``, at ``time_s``; what a run did not record is left out."""

    time_s: Floats
    gauges: Mapping[str, Floats]


def over_time(result: Result, end_s: float) -> OverTime:
    """Return the gauges of a run at equal distances from 0 to ``end_s``."""
    time_s = np.linspace(0.0, max(end_s, 1e-9), _POINTS)
    held, serving = _replicas(result.summary, time_s)
    arrival, first, finish = (
        np.sort(result.columns[name].astype(np.float64) / _NS_PER_S)
        for name in ("arrival_ns", "first_token_ns", "finish_ns")
    )
    came, begun, done = (
        np.searchsorted(times, time_s, side="right").astype(np.float64) for times in (arrival, first, finish)
    )
    gauges = {"held": held, "serving": serving, "waiting": came - begun, "running": begun - done}
    if (kv := _kv(result, time_s)) is not None:
        gauges["kv"] = kv
    return OverTime(time_s, gauges)


def together(results: Sequence[Result]) -> list[OverTime]:
    """Return all of them on one time axis, that of the longest."""
    end_s = max(float(result.summary.get("duration_s") or 0.0) for result in results)
    return [over_time(result, end_s) for result in results]


def _replicas(summary: Mapping[str, Any], time_s: Floats) -> tuple[Floats, Floats]:
    """Return replicas held, and those of them that do not start any more."""
    events = [event for event in summary.get("scale_events") or () if isinstance(event, Mapping)]
    span_s, instances = float(summary.get("duration_s") or 0.0), section(summary, "instances")
    if not events:
        held = np.full(len(time_s), float(instances.get("max") or 0.0))
        return held, held
    means = section(instances, "mean_by_role")
    held = np.zeros(len(time_s))
    for times, counts in instance_steps(events, means, span_s).values():
        place = np.searchsorted(times, time_s, side="right") - 1
        held += np.where(place < 0, 0.0, counts[np.maximum(place, 0)])
    starting = np.zeros(len(time_s))
    for begin_s, end_s in _starts(events, span_s):
        starting += (time_s >= begin_s) & (time_s < end_s)
    return held, np.maximum(held - starting, 0.0)


def _starts(events: Sequence[Mapping[str, Any]], span_s: float) -> Iterator[tuple[float, float]]:
    """Return from when to when each replica started."""
    begun: dict[Any, float] = {}
    for event in events:
        replica, at_s = event.get("replica"), float(event["t_s"])
        if event["act"] in _STARTED and replica in begun:
            yield begun.pop(replica), at_s
        if event["act"] == _STARTS[0]:
            begun[replica] = at_s
    yield from ((at_s, span_s) for at_s in begun.values())


def _kv(result: Result, time_s: Floats) -> Floats | None:
    """Return the KV in use from the series, otherwise from what servers reported; None without either."""
    if (path := result.folder / SERIES_NAME).is_file():
        columns = columns_of(path, (TIME, ENGINE, KV_GAUGE))
        mine = columns[ENGINE] != NO_ENGINE
        times, rows = np.unique(columns[TIME][mine].astype(np.float64), return_inverse=True)
        return _held_at(time_s, times, np.bincount(rows, weights=columns[KV_GAUGE][mine]).astype(np.float64))
    if not (path := result.folder / JOURNAL_NAME).is_file():
        return None
    seen: dict[int, list[tuple[float, float]]] = {}
    for _, event, *_ in journal_lines(path):
        if event[0] == "observed" and event[6]:
            seen.setdefault(event[1], []).append((event[2] / _NS_PER_S, event[5] / event[6]))
    if not seen:
        return None
    each = [np.array(sorted(points)) for points in seen.values()]
    used: Floats = np.sum([_held_at(time_s, points[:, 0], points[:, 1]) for points in each], axis=0)
    return used


def _held_at(time_s: Floats, times: Floats, values: Floats) -> Floats:
    """Return a step function's values: 0 before the first."""
    place = np.searchsorted(times, time_s, side="right") - 1
    return np.where(place < 0, 0.0, values[np.maximum(place, 0)])
