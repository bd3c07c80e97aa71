"""``report.html``: one run on one page that opens offline, with nothing fetched and no script."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments import plots, series
from experiments.report_style import STYLE
from experiments.series import Columns, Floats, Requests
from experiments.table import (
    LATENCIES,
    NOTHING,
    STATISTICS,
    count,
    duration,
    facts,
    is_known,
    lost,
    number,
    section,
    share,
)

_KINDS = {"simulate": "Simulation", "realexec": "Real workers"}
# Forbids the page every outside address, whatever text ends up in it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(
    path: Path, summary: Mapping[str, Any], columns: Columns, config_yaml: str, notes: Sequence[str]
) -> None:
    """Write the page for one run.

    ``summary`` is the content of summary.json: missing parts and None show as a dash; ``commit`` and
    ``replica_busy_share`` (fractions by replica id) are shown where given. ``columns`` are those of
    requests.parquet, one row per finished request, times in ns.
    """
    config = _mapping(config_yaml)
    requests = Requests.of(columns)
    title = " · ".join(_name(config, group) for group in ("system", "model", "cluster", "trace"))
    body = [
        _header(title, config, summary, notes),
        _tiles(summary),
        _numbers(summary),
        _figures(requests, config, summary),
        _losses(summary),
        _workload(summary),
        '<h2>Configuration</h2><details class="card"><summary>Every value of this run (config.yaml)</summary>'
        f"<pre>{escape(config_yaml)}</pre></details>",
        "<footer>ServeTwin run report. Latencies are those of finished requests; docs/METRICS.md defines "
        "every number.</footer>",
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>ServeTwin: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
    Path(path).write_text(page, encoding="utf-8", errors="backslashreplace")


def _mapping(text: str) -> Mapping[str, Any]:
    """The configuration as data; empty when the text is none (it is shown as it is all the same)."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return data if isinstance(data, dict) else {}


def _name(config: Mapping[str, Any], group: str) -> str:
    return str(section(config, group).get("name", f"unknown {group}"))


def _header(title: str, config: Mapping[str, Any], summary: Mapping[str, Any], notes: Sequence[str]) -> str:
    model, cluster, system = (section(config, group) for group in ("model", "cluster", "system"))
    step_time, trace = section(summary, "step_time"), section(summary, "trace")
    policies = [
        section(system, part).get("name")
        for part in ("dispatch", "batcher", "admission")
        if section(system, part)
    ]
    tp, gpus = model.get("tp", "?"), cluster.get("gpus", "?")
    claim = (
        f"{_name(config, 'system')} serving {_name(config, 'model')}, engine {_name(config, 'engine')}, "
        f"on {gpus} GPU{'' if gpus == 1 else 's'} of type {cluster.get('gpu', '?')}, {tp} per replica."
    )
    error = step_time.get("error_band") or "unknown"
    step_kind, step_source = step_time.get("kind") or "unknown", step_time.get("source") or "source unknown"
    shown = [
        ("Trace", f"{_name(config, 'trace')} ({trace.get('source') or 'source unknown'})"),
        ("Policies", ", ".join(map(str, policies)) or NOTHING),
        ("Step time", f"{step_kind} ({step_source}), error {error}"),
        ("Seed", str(config.get("seed", "unknown"))),
        ("Commit", str(summary.get("commit") or "unknown")),
    ]
    items = "".join(f"<li><span>{name}</span><b>{escape(text)}</b></li>" for name, text in shown)
    kind = _KINDS.get(str(config.get("kind")), "Run")
    warnings = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        f'<header><p class="kind">{kind}</p><h1>{escape(title)}</h1><p class="claim">{escape(claim)}</p>'
        f'<ul class="facts">{items}</ul>{warnings}</header>'
    )


def _tiles(summary: Mapping[str, Any]) -> str:
    slo = section(summary, "slo")
    tiles = [
        ("TTFT P99", duration(section(summary, "ttft_ms").get("p99"))),
        ("TPOT P99", duration(section(summary, "tpot_ms").get("p99"))),
        ("SLO attainment", share(slo.get("attainment"))),
        ("Goodput", f"{number(slo.get('goodput_req_per_s'))} req/s"),
        ("Finished", count(section(summary, "requests").get("finished"))),
    ]
    cells = "".join(
        f'<div class="tile"><p>{name}</p><strong>{escape(text)}</strong></div>' for name, text in tiles
    )
    return f'<section class="tiles">{cells}</section>'


def _numbers(summary: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{name}</th>" for name in STATISTICS)
    rows = ""
    for key, label in LATENCIES:
        values = section(summary, key)
        cells = "".join(f"<td>{duration(values.get(name))}</td>" for name in STATISTICS)
        rows += f'<tr><td class="name">{label}</td>{cells}</tr>'
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts(summary)
    )
    return (
        '<h2>Key numbers</h2><div class="card scroll"><table>'
        f"<tr><th>Latency</th>{head}</tr>{rows}</table></div>"
        f'<div class="card" style="margin-top:14px"><dl>{pairs}</dl></div>'
    )


def _figures(requests: Requests, config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    if not len(requests):
        empty = "No request finished: there is nothing to plot."
        return f'<h2>Latency and load</h2><div class="card soft">{empty}</div>'
    slo = section(config, "slo")
    ttft_slo, tpot_slo = slo.get("ttft_ms"), slo.get("tpot_ms")
    latency = [
        _distributions(requests, ttft_slo, tpot_slo),
        _over_time("TTFT by arrival time", requests, requests.ttft_ms, ttft_slo, 1),
        _over_time("TPOT by arrival time", requests, requests.tpot_ms, tpot_slo, 2),
    ]
    load = [
        _level(
            "Requests waiting for their first token", requests, requests.arrival_s, requests.first_token_s, 1
        ),
        _level("Requests decoding", requests, requests.first_token_s, requests.finish_s, 2),
        _arrivals(requests, wide=bool(summary.get("replica_busy_share"))),
        _finished_by_replica(requests),
        _busy_by_replica(summary),
    ]
    return (
        f'<h2>Latency</h2><section class="grid2">{"".join(latency)}</section>'
        f'<h2>Load</h2><section class="grid2">{"".join(load)}</section>'
    )


def _figure(
    caption: str, detail: str, svg: str, key: Sequence[tuple[int, str]] = (), wide: bool = False
) -> str:
    entries = "".join(f'<span><i class="b{color}"></i>{escape(label)}</span>' for color, label in key)
    legend = f'<div class="key">{entries}</div>' if entries else ""
    small = f"<small>{escape(detail)}</small>" if detail else ""
    style = "card full" if wide else "card"
    return f'<figure class="{style}"><figcaption>{escape(caption)}{small}</figcaption>{legend}{svg}</figure>'


def _distributions(requests: Requests, ttft_slo: Any, tpot_slo: Any) -> str:
    """Cumulative distributions of the three latencies with the objectives as dashed lines."""
    drawn, shown = [], []
    for color, (label, values) in enumerate(
        (("TTFT", requests.ttft_ms), ("TPOT", requests.tpot_ms), ("E2E", requests.e2e_ms)), start=1
    ):
        x, y = series.distribution(values)
        shown.append(x)
        # From the bottom up, so that one request (or many equal ones) still draws a line.
        drawn.append(
            plots.Series(label, np.append(x[:1], x), np.append(np.zeros(len(y[:1])), 100 * y), color)
        )
    rules = [
        plots.Rule("x", float(value), f"{label} SLO {duration(value)}", color)
        for color, label, value in ((1, "TTFT", ttft_slo), (2, "TPOT", tpot_slo))
        if is_known(value)
    ]
    x_axis = plots.log_axis("latency", *shown, np.array([rule.value for rule in rules]), write=duration)
    y_axis = plots.Axis("% of requests", 0.0, 100.0)
    svg = plots.line_plot("Latency distributions", drawn, x_axis, y_axis, rules, plots.WIDE)
    key = [(one.color, one.label) for one in drawn]
    return _figure(
        "Latency distribution", "share of finished requests at or below a latency", svg, key, wide=True
    )


def _over_time(caption: str, requests: Requests, values_ms: Floats, slo_ms: Any, color: int) -> str:
    """Every request as a point, or P50 and P99 of time bins when there are many."""
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
        "", *(one.y for one in drawn), np.array([rule.value for rule in rules]), write=duration
    )
    return _figure(caption, detail, plots.line_plot(caption, drawn, time, y_axis, rules), key)


def _positive(values: Floats) -> Floats:
    """Zero has no place on a log axis: it is drawn at the lowest edge the other values make."""
    positive = values[np.isfinite(values) & (values > 0)]
    return np.where(values <= 0, positive.min() if len(positive) else 1.0, values)


def _level(caption: str, requests: Requests, starts_s: Floats, ends_s: Floats, color: int) -> str:
    time, unit_s = plots.time_axis(requests.end_s)
    x, most = series.level(starts_s, ends_s, requests.end_s)
    drawn = plots.Series("", x / unit_s, most, color, "area")
    svg = plots.line_plot(caption, [drawn], time, plots.linear_axis("", most, whole=True))
    return _figure(caption, "the most at once within each stretch of time", svg)


def _arrivals(requests: Requests, wide: bool) -> str:
    caption = "Arrivals of finished requests"
    time, unit_s = plots.time_axis(requests.end_s)
    x, per_s = series.rate(requests.arrival_s, requests.end_s)
    drawn = plots.Series("", x / unit_s, per_s, 3, "area")
    width = plots.WIDE if wide else plots.HALF
    svg = plots.line_plot(caption, [drawn], time, plots.linear_axis("", per_s), width=width)
    return _figure(caption, "per second", svg, wide=wide)


def _finished_by_replica(requests: Requests) -> str:
    finished = np.bincount(requests.replica[requests.replica >= 0]).astype(np.float64)
    return _bars("Finished requests by replica", finished, 1, count, whole=True)


def _busy_by_replica(summary: Mapping[str, Any]) -> str:
    """Empty when the run did not say (``replica_busy_share``: a list of fractions, by replica id)."""
    busy = summary.get("replica_busy_share")
    if not busy:
        return ""
    percent = 100 * np.array([value if is_known(value) else 0.0 for value in busy])
    return _bars("Busy share by replica", percent, 3, lambda value: f"{number(value)} %")


def _bars(caption: str, values: Floats, color: int, write: Any, whole: bool = False) -> str:
    labels, heights = series.per_replica(values)
    detail = (
        "" if len(labels) == len(values) else f"mean of groups of neighbouring replicas, {len(values)} in all"
    )
    y_axis = plots.linear_axis("", heights, write=write, whole=whole)
    svg = plots.bar_plot(caption, labels, heights, "replica", y_axis, color=color)
    return _figure(caption, detail, svg)


def _losses(summary: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="name">{escape(what)}</td><td class="text">{escape(reason)}</td><td>{times}</td></tr>'
        for what, reason, times in lost(summary)
    )
    if not rows:
        return '<h2>Requests without an answer</h2><div class="card soft">None.</div>'
    return (
        '<h2>Requests without an answer</h2><div class="card"><table><tr><th>What happened</th>'
        f'<th style="text-align:left">Reason</th><th>Requests</th></tr>{rows}</table></div>'
    )


def _workload(summary: Mapping[str, Any]) -> str:
    """Where the trace comes from and how it was changed."""
    trace = section(summary, "trace")
    chips = "".join(f'<span class="chip">{escape(str(label))}</span>' for label in trace.get("labels") or ())
    chips = chips or '<span class="soft">as recorded, nothing changed</span>'
    source = escape(str(trace.get("source") or "source unknown"))
    name = escape(str(trace.get("name") or "unknown trace"))
    return f'<h2>Workload</h2><div class="card"><p class="from"><b>{name}</b>: {source}</p>{chips}</div>'
