"""Panels of one or several runs: distributions, latency over time, instances over time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from servetwin.plotting.panel import Line, Panel
from servetwin.report.number_text import section
from servetwin.report.scaling import at_common_times, instance_steps
from servetwin.results import series
from servetwin.results.series import Requests, requests_in
from serving.vocabulary.errors import UserError

LATENCIES: Final = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run's requests and summary, with the label of its lines."""

    label: str
    requests: Requests
    summary: Mapping[str, Any]


def named_run(folder: Path, label: str) -> NamedRun:
    """Return the run of a result folder."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return NamedRun(label, requests_in(folder), summary)


def latency(runs: Sequence[NamedRun], metrics: Sequence[str]) -> list[Panel]:
    """Return a panel per latency: the share of requests at or below it, a line per run."""
    return [
        Panel(
            title=LATENCIES[metric],
            x_label=f"{LATENCIES[metric]} (ms)",
            y_label="share of requests",
            lines=tuple(Line(label=run.label, x=x, y=y) for run, (x, y) in _distributions(runs, metric)),
            log_x=True,
            is_share=True,
        )
        for metric in metrics or LATENCIES
    ]


def _distributions(
    runs: Sequence[NamedRun], metric: str
) -> list[tuple[NamedRun, tuple[list[float], list[float]]]]:
    found = []
    for run in runs:
        x, y = series.distribution(getattr(run.requests, metric))
        found.append((run, (list(map(float, x)), list(map(float, y)))))
    return found


def time(runs: Sequence[NamedRun], metrics: Sequence[str]) -> list[Panel]:
    """Return a panel per latency: P50 and P99 of equal stretches of arrival time, of each run."""
    panels = []
    for metric in metrics or ("ttft_ms",):
        lines = []
        for run in runs:
            values = getattr(run.requests, metric)
            x, found = series.binned_percentiles(run.requests.arrival_s, values, [50, 99])
            for name, y in zip(("P50", "P99"), found, strict=True):
                label = f"{run.label}, {name}" if len(runs) > 1 else name
                lines.append(Line(label=label, x=list(map(float, x)), y=list(map(float, y))))
        name = LATENCIES[metric]
        panels.append(
            Panel(title=name, x_label="arrival (s)", y_label=f"{name} (ms)", lines=tuple(lines), log_y=True)
        )
    return panels


def instances(runs: Sequence[NamedRun], metrics: Sequence[str]) -> list[Panel]:
    """Return one panel: instances over time, of a single run by role. UserError for runs without scaling."""
    lines = []
    for run in runs:
        span_s = float(run.summary.get("duration_s") or 0.0)
        mean_by_role = section(section(run.summary, "instances"), "mean_by_role")
        steps = instance_steps(run.summary.get("scale_events") or (), mean_by_role, span_s)
        if not steps:
            raise UserError(f"{run.label} started and released no instance: plot kind=latency or kind=time")
        if len(runs) == 1 and len(steps) > 1:
            lines += [_steps(role, x, y, span_s) for role, (x, y) in steps.items()]
        else:
            times, held = at_common_times(steps)
            lines.append(_steps(run.label, times, np.sum(list(held.values()), axis=0), span_s))
    panel = Panel(
        title="Instances", x_label="time (s)", y_label="instances", lines=tuple(lines), whole_y=True
    )
    return [panel]


def _steps(label: str, x: Any, y: Any, span_s: float) -> Line:
    ends = [*map(float, x), span_s], [*map(float, y), float(y[-1])]
    return Line(label=label, x=ends[0], y=ends[1], shape="steps")


KINDS: Final[Mapping[str, Callable[[Sequence[NamedRun], Sequence[str]], list[Panel]]]] = {
    "latency": latency,
    "time": time,
    "instances": instances,
}
