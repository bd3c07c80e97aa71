"""The plots of a run's report."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from servetwin.report import plots
from servetwin.report.number_text import count, duration, is_known, number, section
from servetwin.report.page_parts import card, charts
from servetwin.results import series
from servetwin.results.series import Floats, Requests


def figures(requests: Requests, config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return the sections Latency and Load as HTML."""
    if not len(requests):
        empty = "No request finished: there is nothing to plot."
        return card("Latency and load", empty, "card soft")
    slo = section(config, "slo")
    ttft_slo, tpot_slo = slo.get("ttft_ms"), slo.get("tpot_ms")
    latency = [
        distributions(requests, ttft_slo, tpot_slo),
        over_time("TTFT by arrival time", requests, requests.ttft_ms, ttft_slo, 1),
        over_time("TPOT by arrival time", requests, requests.tpot_ms, tpot_slo, 2),
    ]
    load = [
        waiting(requests),
        _level("Requests decoding", requests, requests.first_token_s, requests.finish_s, 2),
        _arrivals(requests, wide=bool(summary.get("replica_busy_share"))),
        _finished_by_replica(requests),
        _busy_by_replica(summary),
    ]
    return charts("Latency", latency) + charts("Load", load)


def figure(
    caption: str, detail: str, svg: str, key: Sequence[tuple[int, str]] = (), wide: bool = False
) -> str:
    """Return a card with its caption; ``key``: (colour, label) of the drawn series."""
    entries = "".join(f'<span><i class="b{color}"></i>{escape(label)}</span>' for color, label in key)
    legend = f'<div class="key">{entries}</div>' if entries else ""
    small = f"<small>{escape(detail)}</small>" if detail else ""
    style = "card full" if wide else "card"
    return f'<figure class="{style}"><figcaption>{escape(caption)}{small}</figcaption>{legend}{svg}</figure>'


def distributions(requests: Requests, ttft_slo: Any, tpot_slo: Any) -> str:
    """Draw cumulative distributions of the three latencies, with the objectives as dashed lines."""
    drawn, shown = [], []
    for color, (label, values) in enumerate(
        (("TTFT", requests.ttft_ms), ("TPOT", requests.tpot_ms), ("E2E", requests.e2e_ms)), start=1
    ):
        x, y = series.distribution(values)
        shown.append(x)
        # From share 0 upwards, so that a single request (or many equal ones) still draws a line.
        drawn.append(
            plots.Series(label, np.append(x[:1], x), np.append(np.zeros(len(y[:1])), 100 * y), color)
        )
    rules = [
        plots.Rule("x", float(value), f"{label} SLO {duration(value)}", color)
        for color, label, value in ((1, "TTFT", ttft_slo), (2, "TPOT", tpot_slo))
        if is_known(value)
    ]
    x_axis = plots.log_axis("latency", *shown, np.array([rule.value for rule in rules]), write=duration)
    y_axis = plots.Axis(label="% of requests", low=0.0, high=100.0)
    svg = plots.line_plot("Latency distributions", drawn, x_axis, y_axis, rules=rules, width=plots.WIDE)
    key = [(line.color, line.label) for line in drawn]
    return figure(
        "Latency distribution", "share of finished requests at or below a latency", svg, key, wide=True
    )


def over_time(caption: str, requests: Requests, values_ms: Floats, slo_ms: Any, color: int) -> str:
    """Draw every request as a point, or P50 and P99 of time bins if there are many."""
    time, unit_s = plots.time_axis(requests.end_s)
    rules = [plots.Rule("y", float(slo_ms), f"SLO {duration(slo_ms)}")] if is_known(slo_ms) else []
    if len(requests) <= series.MOST_POINTS:
        drawn = [plots.Series("", requests.arrival_s / unit_s, _positive(values_ms), color, "points")]
        detail, key = "one point per request", []
    else:
        x, (p50, p99) = series.binned_percentiles(requests.arrival_s, values_ms, [50, 99])
        other = 3 if color != 3 else 1
        drawn = [
            plots.Series("P99", x / unit_s, _positive(p99), color),
            plots.Series("P50", x / unit_s, _positive(p50), other),
        ]
        detail, key = "percentiles of equal stretches of time", [(color, "P99"), (other, "P50")]
    y_axis = plots.log_axis(
        "", *(line.y for line in drawn), np.array([rule.value for rule in rules]), write=duration
    )
    return figure(caption, detail, plots.line_plot(caption, drawn, time, y_axis, rules=rules), key)


def _positive(values: Floats) -> Floats:
    """Replace zeros, which a log axis cannot show, by the axis's lowest edge."""
    positive = values[np.isfinite(values) & (values > 0)]
    return np.where(values <= 0, positive.min() if len(positive) else 1.0, values)


def waiting(requests: Requests) -> str:
    """Draw how many requests wait for their first token."""
    caption = "Requests waiting for their first token"
    return _level(caption, requests, requests.arrival_s, requests.first_token_s, 1)


def _level(caption: str, requests: Requests, starts_s: Floats, ends_s: Floats, color: int) -> str:
    time, unit_s = plots.time_axis(requests.end_s)
    x, most = series.level(starts_s, ends_s, requests.end_s)
    drawn = plots.Series("", x / unit_s, most, color, "area")
    svg = plots.line_plot(caption, [drawn], time, plots.linear_axis("", most, whole=True))
    return figure(caption, "the most at once within each stretch of time", svg)


def _arrivals(requests: Requests, wide: bool) -> str:
    caption = "Arrivals of finished requests"
    time, unit_s = plots.time_axis(requests.end_s)
    x, per_s = series.rate(requests.arrival_s, requests.end_s)
    drawn = plots.Series("", x / unit_s, per_s, 3, "area")
    width = plots.WIDE if wide else plots.HALF
    svg = plots.line_plot(caption, [drawn], time, plots.linear_axis("", per_s), width=width)
    return figure(caption, "per second", svg, wide=wide)


def _finished_by_replica(requests: Requests) -> str:
    finished = np.bincount(requests.replica[requests.replica >= 0]).astype(np.float64)
    return _bars("Finished requests by replica", finished, color=1, write=count, whole=True)


def _busy_by_replica(summary: Mapping[str, Any]) -> str:
    """Draw ``replica_busy_share`` (fractions by replica id); empty if the summary lacks it."""
    busy = summary.get("replica_busy_share")
    if not busy:
        return ""
    percent = 100 * np.array([value if is_known(value) else 0.0 for value in busy])
    detail = "share of the run with a step running"
    return _bars(
        "GPU busy by replica", percent, color=3, write=lambda value: f"{number(value)} %", detail=detail
    )


def _bars(
    caption: str,
    values: Floats,
    *,
    color: int,
    write: Callable[[float], str],
    whole: bool = False,
    detail: str = "",
) -> str:
    labels, heights = series.per_replica(values)
    if len(labels) != len(values):
        grouped = f"mean of groups of neighbouring replicas, {len(values)} in all"
        detail = f"{detail}; {grouped}" if detail else grouped
    y_axis = plots.linear_axis("", heights, write=write, whole=whole)
    svg = plots.bar_plot(caption, labels, heights, x_label="replica", y=y_axis, color=color)
    return figure(caption, detail, svg)
