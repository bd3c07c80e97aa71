"""Presents the comparison of several runs: for the console, one page, and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from servetwin.compare.bootstrap import Difference
from servetwin.compare.over_time import GAUGES, together
from servetwin.compare.run_names import what_ran
from servetwin.compare.side_by_side import LATENCIES, PERCENTS, WHOLE, Beside, SideBySide
from servetwin.report import plots
from servetwin.report.answer_page import COLORS, answer, command, page, table
from servetwin.report.figures import figure
from servetwin.report.metric_text import value_text
from servetwin.report.number_text import NOTHING, section
from servetwin.report.page_parts import charts
from servetwin.report.starts import different_starts, preparation_s
from servetwin.results.ranges import value_of

_FOOT = (
    "Differences are against the first run, request by request. The interval is 95 % of a bootstrap of "
    "blocks of neighbouring requests: what chance there is in this workload, not how far off the model is."
)


def metrics() -> list[str]:
    """Return the displayed metrics in order."""
    return [f"{latency}.{name}" for latency in LATENCIES for name in ("mean", *PERCENTS)] + list(WHOLE)


def difference_text(metric: str, difference: Difference | None) -> str:
    """Return ``-12.1 ms (-15.0 to -9.2)``, with a remark if the difference may be chance."""
    if difference is None:
        return ""
    if difference.identical:
        return "identical"
    if not difference.distinguishable:
        return "not distinguishable"
    low, high = (_signed(metric, end) for end in (difference.low, difference.high))
    return f"{_signed(metric, difference.value)} ({low} to {high})"


def _signed(metric: str, value: float) -> str:
    return ("+" if value > 0 else "-" if value < 0 else "") + value_text(metric, abs(value))


def head(comparison: SideBySide) -> list[str]:
    """Return the columns of the table."""
    first, *rest = _named(comparison)
    return ["", first, *(part for name in rest for part in (name, "against the first"))]


def rows(comparison: SideBySide) -> list[list[str]]:
    """Return one row per metric."""
    first, *rest = comparison.results
    lines = []
    for metric in metrics():
        line = [metric, value_text(metric, value_of(first.summary, metric))]
        for result, beside in zip(rest, comparison.against, strict=True):
            line.append(value_text(metric, value_of(result.summary, metric)))
            line.append(difference_text(metric, beside.differences.get(metric)))
        lines.append(line)
    return lines


def sentences(comparison: SideBySide) -> list[str]:
    """Return how starts differ, and per run, which run is better in mean and tail of TTFT."""
    seconds = {
        name: one
        for name, result in zip(comparison.names, comparison.results, strict=True)
        if (one := preparation_s(section(section(result.summary, "starts"), "median_s"))) is not None
    }
    return [
        *different_starts(seconds),
        *(
            _sentence(name, beside)
            for name, beside in zip(comparison.names[1:], comparison.against, strict=True)
        ),
    ]


def _sentence(name: str, beside: Beside) -> str:
    if beside.why_not:
        return f"{name}: nothing is paired ({beside.why_not})."
    start = f"{name} against the first, {beside.paired:,} requests paired:"
    if beside.differences and all(difference.identical for difference in beside.differences.values()):
        return f"{start} every latency is identical."
    parts = []
    for metric, label in (
        ("ttft_ms.mean", "mean TTFT"),
        ("ttft_ms.p99", "P99 TTFT"),
        ("tpot_ms.mean", "mean TPOT"),
    ):
        difference = beside.differences.get(metric)
        if difference is not None:
            parts.append(f"{label} {difference_text(metric, difference)}")
    return f"{start} {'; '.join(parts)}."


def what_differs(comparison: SideBySide) -> list[list[str]]:
    """Return rows of (key, value of every run) for keys that differ from the first run."""
    keys = list(dict.fromkeys(key for beside in comparison.against for key in beside.changed))
    lines = []
    for key in keys:
        first = next(beside.changed[key][0] for beside in comparison.against if key in beside.changed)
        rest = [beside.changed[key][1] if key in beside.changed else first for beside in comparison.against]
        lines.append([key, *(NOTHING if value is None else str(value) for value in (first, *rest))])
    return lines


def diverging(comparison: SideBySide) -> list[str]:
    """Return the first difference of each run's journal."""
    lines = []
    for name, beside in zip(comparison.names[1:], comparison.against, strict=True):
        if beside.divergence is not None:
            lines += beside.divergence.text((comparison.names[0], name))
    return lines


def as_page(comparison: SideBySide, words: str) -> str:
    """Return the HTML of the whole page."""
    parts = [
        *(answer(sentence) for sentence in sentences(comparison)),
        table("Numbers", head(comparison), rows(comparison)),
        charts("Over time", _figures(comparison)),
    ]
    changed = what_differs(comparison)
    if changed:
        parts.append(
            table(
                "What differs in the configuration",
                ["key", *_named(comparison)],
                changed,
                len(comparison.names) + 1,
            )
        )
    if lines := diverging(comparison):
        parts.append(table("First decision that differs", ["journals"], [[line] for line in lines]))
    return page("Comparison", " · ".join(_named(comparison)), "", [*parts, command(words)], _FOOT)


def _figures(comparison: SideBySide) -> list[str]:
    """Return a figure for each gauge, all runs in it."""
    runs = together(comparison.results)
    time, unit_s = plots.time_axis(float(runs[0].time_s[-1]))
    figures = []
    for gauge, label in GAUGES.items():
        lines = [
            plots.Series(name, run.time_s / unit_s, run.gauges[gauge], color % COLORS + 1)
            for color, (name, run) in enumerate(zip(_named(comparison), runs, strict=True))
            if gauge in run.gauges
        ]
        if lines:
            height = plots.linear_axis("", *(line.y for line in lines))
            svg = plots.line_plot(label, lines, time, height)
            figures.append(figure(label, "", svg, [(line.color, line.label) for line in lines]))
    return figures


def _named(comparison: SideBySide) -> list[str]:
    """Return the runs' names with what ran, if that is not the same for all."""
    kinds = [what_ran(result.summary) for result in comparison.results]
    if len(set(kinds)) == 1:
        return list(comparison.names)
    return [f"{name} ({kind})" for name, kind in zip(comparison.names, kinds, strict=True)]


def as_data(comparison: SideBySide) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {
        "runs": [
            {
                "folder": str(result.folder),
                "name": what_ran(result.summary),
                "numbers": {name: value_of(result.summary, name) for name in metrics()},
            }
            for result in comparison.results
        ],
        "against_the_first": [
            {
                "paired": beside.paired,
                "why_not": beside.why_not,
                "differences": {
                    metric: {
                        **asdict(difference),
                        "distinguishable": difference.distinguishable,
                        "identical": difference.identical,
                    }
                    for metric, difference in beside.differences.items()
                },
                "configuration": {key: list(pair) for key, pair in beside.changed.items()},
                "first_divergence": None if beside.divergence is None else asdict(beside.divergence),
            }
            for beside in comparison.against
        ],
    }
