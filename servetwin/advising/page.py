"""``report.html`` of an advice: instances over time, recorded, advised and simulated, for each scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from servetwin.advising.answer import Advised, OfScaler
from servetwin.advising.columns import COLUMNS, KV_USE, REQUESTS, RUNNING, WAITING
from servetwin.advising.steps import Steps, advised_steps, drawn, recorded_steps, simulated_steps
from servetwin.advising.text import (
    ADVISED,
    SIMULATED,
    changes,
    clock,
    commands,
    head,
    lacking,
    remarks,
    rows,
    sentence,
)
from servetwin.report import plots
from servetwin.report.answer_page import answer, command, page, table
from servetwin.report.figures import figure
from servetwin.report.number_text import duration, number, share
from servetwin.report.page_parts import card, charts, named_rows
from servetwin.run.heartbeat import left_text

_FOOT: Final = (
    "An advised number is what the scaler, asked with the recorded metrics and instances, would have set; "
    "the record does not change by it. A simulated number is of a run in which the scaler acts. "
    "docs/how-to/ADVISE.md says what is taken from the record."
)
_MOST_CHANGES: Final = 80
_RECORDED, _ADVISED, _SIMULATED = 1, 2, 3  # colours


def advice_page(advised: Advised, words: str) -> str:
    """Return the HTML of the whole page."""
    title = advised.options.log.name
    parts = [
        answer(sentence(advised)),
        charts("Instances over time", [_instances(advised, one) for one in _shown(advised)]),
        table("Scalers", head(advised), rows(advised)),
    ]
    if without := lacking(advised):
        parts.append(table("Scalers that could not be asked", ["scaler", "why"], without, words=2))
    parts.append(charts("What was recorded", _recorded(advised)))
    if decided := _changes(advised):
        names = ["time", "scaler", "recorded", "advised", "why"]
        parts.append(table("Where advice and record differ", names, decided, words=5))
    told = [(name, text) for name, _, text in (line.partition(": ") for line in remarks(advised))]
    parts.append(card("What was taken for what", named_rows(told, "from sources")))
    if runs := commands(advised):
        parts.append(table("Commands of the simulated runs", ["row", "command"], runs, words=2))
    parts.append(command(words))
    begun = clock(advised, 0.0)
    return page("Advice", title, f"{begun}, {left_text(advised.record.end_s)}".lstrip(", "), parts, _FOOT)


def _shown(advised: Advised) -> list[OfScaler]:
    return [
        one for one in advised.scalers if one.advice.decisions or (one.run is not None and one.run.serving)
    ]


def _instances(advised: Advised, one: OfScaler) -> str:
    """Draw one scaler: the recorded number as an area, the others as lines."""
    end_s = advised.record.end_s
    time, unit_s = plots.time_axis(end_s)
    x, y = recorded_steps(advised.record)
    known = np.isfinite(y)
    series = [plots.Series("recorded", x[known] / unit_s, y[known], _RECORDED, "area")]
    key = [(_RECORDED, "recorded")]
    if one.advice.decisions:
        series.append(_line("advised", advised_steps(one.advice), end_s, unit_s, _ADVISED))
        key.append((_ADVISED, "advised"))
    if one.run is not None and one.run.serving:
        series.append(_line("simulated", simulated_steps(one.run, end_s), end_s, unit_s, _SIMULATED))
        key.append((_SIMULATED, "simulated"))
    y_axis = plots.linear_axis("instances", *(line.y for line in series), whole=True)
    svg = plots.line_plot(f"Instances with {one.name}", series, time, y_axis)
    detail = f"{ADVISED}; {SIMULATED}" if len(series) == 3 else ""
    return figure(one.name, detail if one is _shown(advised)[0] else "", svg, key)


def _line(name: str, steps: Steps, end_s: float, unit_s: float, color: int) -> plots.Series:
    x, y = drawn(steps, end_s)
    return plots.Series(name, x / unit_s, y, color)


def _recorded(advised: Advised) -> list[str]:
    """Draw the recorded load: rate, queue and batch, KV memory."""
    shown = (
        _load(advised, "Requests per second", COLUMNS[REQUESTS], (REQUESTS,)),
        _load(advised, "Requests", "at all instances", (RUNNING, WAITING)),
        _load(advised, "KV memory in use", COLUMNS[KV_USE], (KV_USE,), share),
    )
    return [drawing for drawing in shown if drawing]


def _load(
    advised: Advised,
    caption: str,
    detail: str,
    names: tuple[str, ...],
    write: Callable[[float], str] = number,
) -> str:
    """Draw columns of the record; "" if it has none of them."""
    record = advised.record
    time, unit_s = plots.time_axis(record.end_s)
    x = record.since_s / unit_s
    known = [(name, record.columns[name]) for name in names if name in record.columns]
    if not known:
        return ""
    series = [plots.Series(name, x, values, color) for color, (name, values) in enumerate(known, 1)]
    y_axis = plots.linear_axis("", *(line.y for line in series), write=write)
    key = [(line.color, line.label) for line in series] if len(names) > 1 else []
    return figure(caption, detail, plots.line_plot(caption, series, time, y_axis), key)


def _changes(advised: Advised) -> list[list[str]]:
    """Return rows of decisions that differ from the record, by time; the first ones of many."""
    found = [
        (at_s, one.name, recorded, wanted, reason)
        for one in advised.scalers
        for at_s, recorded, wanted, reason in changes(one)
    ]
    lines = [
        [duration(1000 * at_s).replace(" ", "\u00a0"), name, str(recorded), str(wanted), reason]
        for at_s, name, recorded, wanted, reason in sorted(found)[:_MOST_CHANGES]
    ]
    left = len(found) - len(lines)
    return lines + ([["…", "", "", "", f"{left} more in advise.json"]] if left > 0 else [])
