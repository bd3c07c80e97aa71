"""Presents the comparison of several runs: for the console, one page, and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from servetwin.compare.bootstrap import Difference
from servetwin.compare.side_by_side import LATENCIES, PERCENTS, WHOLE, Beside, SideBySide
from servetwin.report.answer_page import answer, command, page, table
from servetwin.report.metric_text import told
from servetwin.report.number_text import NOTHING
from servetwin.results.ranges import value_of

_FOOT = (
    "Differences are against the first run, request by request. The interval is 95 % of a bootstrap of "
    "blocks of neighbouring requests: what chance there is in this workload, not how far off the model is."
)


def metrics() -> list[str]:
    """Return the displayed metrics in order."""
    return [f"{latency}.{name}" for latency in LATENCIES for name in ("mean", *PERCENTS)] + list(WHOLE)


def told_difference(metric: str, one: Difference | None) -> str:
    """Return ``-12.1 ms (-15.0 to -9.2)``, with a remark if the difference may be chance."""
    if one is None:
        return ""
    if one.identical:
        return "identical"
    if not one.distinguishable:
        return "not distinguishable"
    return f"{_signed(metric, one.value)} ({_signed(metric, one.low)} to {_signed(metric, one.high)})"


def _signed(metric: str, value: float) -> str:
    return ("+" if value > 0 else "-" if value < 0 else "") + told(metric, abs(value))


def head(found: SideBySide) -> list[str]:
    """Return the columns of the table."""
    first, *others = found.names
    return ["", first, *(part for name in others for part in (name, "against the first"))]


def rows(found: SideBySide) -> list[list[str]]:
    """Return one row per metric."""
    first, *others = found.results
    lines = []
    for metric in metrics():
        line = [metric, told(metric, value_of(first.summary, metric))]
        for result, beside in zip(others, found.against, strict=True):
            line.append(told(metric, value_of(result.summary, metric)))
            line.append(told_difference(metric, beside.differences.get(metric)))
        lines.append(line)
    return lines


def sentences(found: SideBySide) -> list[str]:
    """Return, per run, which run is better in mean and tail of the time to first token."""
    return [_sentence(name, beside) for name, beside in zip(found.names[1:], found.against, strict=True)]


def _sentence(name: str, beside: Beside) -> str:
    if beside.why_not:
        return f"{name}: nothing is paired ({beside.why_not})."
    start = f"{name} against the first, {beside.paired:,} requests paired:"
    if beside.differences and all(one.identical for one in beside.differences.values()):
        return f"{start} every latency is identical."
    parts = []
    for metric, label in (
        ("ttft_ms.mean", "mean TTFT"),
        ("ttft_ms.p99", "P99 TTFT"),
        ("tpot_ms.mean", "mean TPOT"),
    ):
        one = beside.differences.get(metric)
        if one is not None:
            parts.append(f"{label} {told_difference(metric, one)}")
    return f"{start} {'; '.join(parts)}."


def what_differs(found: SideBySide) -> list[list[str]]:
    """Return rows of (key, value of every run) for keys that differ from the first run."""
    keys = list(dict.fromkeys(key for beside in found.against for key in beside.changed))
    lines = []
    for key in keys:
        first = next(beside.changed[key][0] for beside in found.against if key in beside.changed)
        others = [beside.changed[key][1] if key in beside.changed else first for beside in found.against]
        lines.append([key, *(NOTHING if value is None else str(value) for value in (first, *others))])
    return lines


def diverging(found: SideBySide) -> list[str]:
    """Return the first difference of each run's journal."""
    lines = []
    for name, beside in zip(found.names[1:], found.against, strict=True):
        if beside.divergence is not None:
            lines += beside.divergence.told((found.names[0], name))
    return lines


def as_page(found: SideBySide, words: str) -> str:
    """Return the HTML of the whole page."""
    parts = [*(answer(one) for one in sentences(found)), table("Numbers", head(found), rows(found))]
    changed = what_differs(found)
    if changed:
        parts.append(
            table("What differs in the configuration", ["key", *found.names], changed, len(found.names) + 1)
        )
    if lines := diverging(found):
        parts.append(table("First decision that differs", ["journals"], [[line] for line in lines]))
    return page("Comparison", " · ".join(found.names), "", [*parts, command(words)], _FOOT)


def as_data(found: SideBySide) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {
        "runs": [
            {"folder": str(one.folder), "numbers": {name: value_of(one.summary, name) for name in metrics()}}
            for one in found.results
        ],
        "against_the_first": [
            {
                "paired": beside.paired,
                "why_not": beside.why_not,
                "differences": {
                    metric: {
                        **asdict(one),
                        "distinguishable": one.distinguishable,
                        "identical": one.identical,
                    }
                    for metric, one in beside.differences.items()
                },
                "configuration": {key: list(pair) for key, pair in beside.changed.items()},
                "first_divergence": None if beside.divergence is None else asdict(beside.divergence),
            }
            for beside in found.against
        ],
    }
