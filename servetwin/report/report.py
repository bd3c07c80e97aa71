"""``report.html``: one run on one page that works offline; its only script filters decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from hwmodels.yaml_text import yaml_data
from servetwin.report import plots
from servetwin.report.cut_outputs import cut_at_cap
from servetwin.report.decisions import decisions, script_policy
from servetwin.report.figures import figure, figures
from servetwin.report.number_text import NOTHING, count, duration, number, section, share
from servetwin.report.page_parts import (
    card,
    cell,
    charts,
    filled,
    head,
    header,
    named_rows,
    page,
    remarks,
    row,
    table,
)
from servetwin.report.range_text import (
    ends_of,
    fact_range,
    near_saturation,
    range_head,
    range_line,
    range_text,
)
from servetwin.report.scaling import scaling
from servetwin.report.stage_maps import stage_maps
from servetwin.report.stages import stages_section
from servetwin.report.starts import start_text
from servetwin.report.table import (
    LATENCIES,
    STATISTICS,
    classes_of,
    facts,
    fault_rows,
    forced,
    lost,
    step_time_error,
    step_time_labels,
    step_time_source,
)
from servetwin.results.series import Columns, Requests
from servetwin.results.use_over_time import BUSY, HOST, LOAD, MEAN, MOST, TIME

# Use of GPUs, links and host memory over time, as charts of the page.

_MOST_POINTS: Final = 240
_SHARES: Final = ((1, "load", LOAD), (2, "busy", BUSY))
_LINKS: Final = {
    "nvlink": "NVLink", "pcie": "PCIe", "pcie_switch": "PCIe switches", "nic": "NICs",
    "leaf": "leaf switches", "spine": "spines", "dram": "host memory", "ssd": "SSDs",
    "remote": "remote store",
}  # fmt: skip


def use_section(use: Mapping[str, Any] | None) -> str:
    """Return the charts' HTML; empty without series. ``use``: columns of use_series.parquet."""
    if use is None or not len(use[TIME]):
        return ""
    kinds = [name.removesuffix(MEAN) for name in use if name.endswith(MEAN)]
    cards = [_gpus(use), *(_link(use, kind) for kind in kinds), _host(use)]
    return charts("Use over time", cards)


def _gpus(use: Mapping[str, Any]) -> str:
    """Draw load and busy share together: GPUs can be busy at a low load."""
    lines = [(color, label, use[key]) for color, label, key in _SHARES if key in use]
    if not lines:
        return ""
    detail = "share of the GPUs held: load is what was served of what full batches could, busy a step running"
    return _chart("GPU load and busy", detail, use[TIME], lines, wide=True)


def _link(use: Mapping[str, Any], kind: str) -> str:
    lines = [(1, "mean of all", use[kind + MEAN]), (2, "the one used most", use[kind + MOST])]
    return _chart(f"Links: {_LINKS.get(kind, kind)}", "share of what they could carry", use[TIME], lines)


def _host(use: Mapping[str, Any]) -> str:
    if HOST not in use:
        return ""
    x, (size,) = _average_periods(use[TIME], [np.asarray(use[HOST]) / 1e9])
    time, unit_s = plots.time_axis(float(use[TIME][-1]))
    drawn = plots.Series("", x / unit_s, size, 3, "area")
    height = plots.linear_axis("", size, write=lambda value: f"{number(value)} GB")
    svg = plots.line_plot("Host memory with copies", [drawn], time, height)
    return figure("Host memory with copies", "parameters kept in the memory of all hosts", svg)


def _chart(
    caption: str, detail: str, ends_s: Any, lines: Sequence[tuple[int, str, Any]], wide: bool = False
) -> str:
    x, values = _average_periods(ends_s, [100 * np.asarray(line) for _, _, line in lines])
    time, unit_s = plots.time_axis(float(ends_s[-1]))
    key = [(color, label) for color, label, _ in lines]
    drawn = [plots.Series(label, x / unit_s, value, color) for (color, label), value in zip(key, values)]
    height = plots.linear_axis("", *values, write=lambda value: f"{number(value)} %")
    svg = plots.line_plot(caption, drawn, time, height, width=plots.WIDE if wide else plots.HALF)
    return figure(caption, detail, svg, key, wide=wide)


def _average_periods(ends_s: Any, columns: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return middles of periods, and values; if there are many, adjacent periods are averaged."""
    ends = np.asarray(ends_s, dtype=np.float64)
    begins = np.append(0.0, ends[:-1])
    lasts = ends - begins
    points = min(len(ends), _MOST_POINTS)
    first = np.unique(np.linspace(0, len(ends), points, endpoint=False).astype(np.int64))
    whole = np.add.reduceat(lasts, first)
    middles = begins[first] + whole / 2
    return middles, [np.add.reduceat(np.asarray(column) * lasts, first) / whole for column in columns]


_ALWAYS_NAMED = ("dispatch", "batcher", "admission")
# A part of a system, by what its policy decides.
_DECIDES: Final = {
    "dispatch": "dispatch", "batcher": "batching", "admission": "admission", "scaler": "autoscaler",
    "provision": "where parameters come from", "cache": "host cache", "live": "live scaling",
    "migration": "migration",
}  # fmt: skip
_KINDS = {"simulate": "Simulation", "realexec": "Real workers"}
# Explanations of numbers, displayed beside them.
_USE = {
    "GPU load": "what the finished requests take in full batches, as a share of what the GPUs could have "
    "served in full batches while they were held.",
    "GPU busy": "the share of time with a step running, of however few requests.",
}


def write_report(
    path: Path,
    *,
    summary: Mapping[str, Any],
    columns: Columns,
    config_yaml: str,
    notes: Sequence[str],
    stage_load: Mapping[str, Any] | None = None,
    journal: Path | None = None,
    use: Mapping[str, Any] | None = None,
) -> None:
    """Write the page of one run.

    ``summary`` is the content of summary.json: missing parts and None appear as a dash; ``code``,
    ``kv_capacity`` and ``replica_busy_share`` (fractions by replica id) appear if present. ``columns``
    are those of requests.parquet, one row per finished request, times in ns. ``stage_load``: the columns of
    stage_series.parquet, if the run has stages. ``journal``: the file from which decisions are read, if it
    exists. ``use``: the columns of use_series.parquet, if the run has series.
    """
    config = _mapping(config_yaml)
    requests = Requests(columns)
    title = " · ".join(_name(config, group) for group in ("system", "model", "cluster", "trace"))
    body = [
        _header(title, config, summary, notes),
        _how_far_off(summary),
        _tiles(summary),
        _numbers(summary),
        figures(requests, config, summary),
        use_section(use),
        stages_section(summary),
        stage_maps(stage_load),
        scaling(summary),
        decided := decisions(journal),
        _losses(summary),
        _faults(summary),
        _sources(summary),
        filled("configuration.html", config=escape(config_yaml)),
    ]
    styles = ["report.css", *(["range.css"] if range_head(summary) else [])]
    text = page(title, body, styles, script_policy() if decided else "")
    Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")


def _mapping(text: str) -> Mapping[str, Any]:
    """Return the configuration as data; empty if the text is not valid (it is displayed all the same)."""
    try:
        data = yaml_data(text)
    except yaml.YAMLError:
        return {}
    return data if isinstance(data, dict) else {}


def _name(config: Mapping[str, Any], group: str) -> str:
    return str(section(config, group).get("name", f"unknown {group}"))


def _policies(system: Mapping[str, Any]) -> list[str]:
    """Return the policies in use, each after what it decides.

    With split roles, prompts wait in one queue without a dispatcher.
    """
    parts = tuple(_DECIDES)
    names = parts[1:] if section(system, "instances").get("split") else parts
    choices = [(part, section(system, part).get("name")) for part in names if section(system, part)]
    return [f"{_DECIDES[part]}: {name}" for part, name in choices if part in _ALWAYS_NAMED or name != "none"]


def _devices(count: object, kind: object) -> str:
    plural = "" if count == 1 else "s"
    return f"CPU core{plural}" if kind == "cpu_core" else f"GPU{plural} of type {kind}"


def _header(title: str, config: Mapping[str, Any], summary: Mapping[str, Any], notes: Sequence[str]) -> str:
    model, cluster, system = (section(config, group) for group in ("model", "cluster", "system"))
    trace = section(summary, "trace")
    tp, gpus = model.get("tp", "?"), cluster.get("gpus", "?")
    claim = (
        f"{_name(config, 'system')} serving {_name(config, 'model')}, engine {_name(config, 'engine')}, "
        f"on {gpus} {_devices(gpus, cluster.get('gpu', '?'))}, {tp} per replica."
    )
    shown = [
        ("Trace", f"{_name(config, 'trace')} ({trace.get('source') or 'source unknown'})"),
        ("Policies", ", ".join(_policies(system)) or NOTHING),
        ("Seed", str(config.get("seed", "unknown"))),
        ("Code", _code(summary)),
    ]
    if starts := start_text(section(summary, "starts")):
        shown.append(("Starts", starts))
    items = "".join(f"<li><span>{name}</span><b>{escape(text)}</b></li>" for name, text in shown)
    kind = _KINDS.get(str(config.get("kind")), "Run")
    labels = (*_labels(summary), *step_time_labels(summary))
    chips = "".join(f'<span class="chip">{escape(label)}</span>' for label in labels)
    more = f'<ul class="facts">{items}</ul><p class="chips">{chips}</p>{remarks(notes)}'
    return header(kind, title, claim, more)


def _tiles(summary: Mapping[str, Any]) -> str:
    slo = section(summary, "slo")
    tiles = [
        ("TTFT P99", duration(section(summary, "ttft_ms").get("p99")), _p99_range(summary, "ttft_ms")),
        ("TPOT P99", duration(section(summary, "tpot_ms").get("p99")), _p99_range(summary, "tpot_ms")),
        ("SLO attainment", share(slo.get("attainment")), fact_range(summary, "SLO attainment")),
        ("Goodput", f"{number(slo.get('goodput_req_per_s'))} req/s", fact_range(summary, "goodput")),
        ("Finished", count(section(summary, "requests").get("finished")), ""),
    ]
    cells = "".join(
        f'<div class="tile"><p>{name}</p><strong>{escape(text)}</strong>{_small(between)}</div>'
        for name, text, between in tiles
    )
    return f'<section class="tiles">{cells}</section>'


def _p99_range(summary: Mapping[str, Any], latency: str) -> str:
    return range_text(summary, f"{latency}.p99", duration)


def _small(between: str) -> str:
    """Return the range below a value; empty if there is none."""
    return f"<small>range {escape(between)}</small>" if between else ""


_RANGE_TEXTS: Final = ("range_is", "range_in_short", "range_rests_on")


def _how_far_off(summary: Mapping[str, Any]) -> str:
    """Return one line before the numbers and the range's sources in full; empty without a range."""
    line = "; ".join(filter(None, (range_line(summary), near_saturation(summary))))
    if not line:
        return ""
    full = "; ".join(str(summary[key]) for key in _RANGE_TEXTS if summary.get(key))
    return filled("range.html", line=escape(line), full=escape(full))


def _numbers(summary: Mapping[str, Any]) -> str:
    rows = [head(["Latency", *STATISTICS], kind="head")]
    for key, label in LATENCIES:
        values = section(summary, key)
        cells = _statistic_cells(duration(values.get(name)) for name in STATISTICS)
        rows.append(row([cell(label, "name"), *cells]))
        for end, texts in [*classes_of(summary, key), *ends_of(summary, key, STATISTICS)]:
            rows.append(row([cell(end), *_statistic_cells(texts)], "end"))
    shown = list(facts(summary))
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}{_small(fact_range(summary, name))}</dd></div>"
        for name, text in shown
    )
    use = " ".join(f"{name}: {_USE[name]}" for name, _ in shown if name in _USE)
    latencies = card("Key numbers", table(rows, "blocks"), "card scroll")
    return latencies + filled("numbers.html", pairs=pairs, use=use)


def _statistic_cells(texts: Iterable[str]) -> list[str]:
    """Return cells of statistics; on a narrow screen each is beside its name."""
    return [cell(text, name=name) for name, text in zip(STATISTICS, texts, strict=True)]


def _losses(summary: Mapping[str, Any]) -> str:
    rows = [
        row([cell(outcome, "name"), cell(reason, "text"), cell(times)])
        for outcome, reason, times in lost(summary)
    ]
    title = "Requests without an answer"
    if not rows:
        return card(title, "None.", "card soft")
    return card(title, table([head(("What happened", "Reason", "Requests"), words=(1,)), *rows]))


def _faults(summary: Mapping[str, Any]) -> str:
    rows = named_rows(fault_rows(summary))
    return card("Faults", rows) if rows else ""


def _code(summary: Mapping[str, Any]) -> str:
    """Return the version and the shortened commit."""
    code = section(summary, "code")
    commit, _, changes = str(code.get("commit") or "unknown").partition("+")
    return f"{code.get('version', 'unknown')}, commit {commit[:12]}{' + changes' if changes else ''}"


def _labels(summary: Mapping[str, Any]) -> list[str]:
    """Return how this workload differs from the recorded one."""
    trace = section(summary, "trace")
    labels = [str(label) for label in trace.get("labels") or ()]
    if cut := cut_at_cap(trace):
        labels.append(f"{count(cut)} outputs cut at max_new_tokens")
    return labels


def _profile_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the profile, why it had to be forced, and the imitated engine's overhead per step."""
    step_time = section(summary, "step_time")
    profile, overhead = step_time.get("profile"), step_time.get("overhead")
    rows = []
    if profile:
        rows.append(("profile", f"{profile.get('path')}, sha256 {str(profile.get('sha256'))[:12]}"))
        rows += [("FORCED", reason) for reason in forced(summary)]
    if overhead:
        step_ms, sequence_us = 1e3 * overhead["step_s"], 1e6 * overhead["per_sequence_s"]
        batches = overhead["graph_batches_up_to"]
        padded = f", batches up to {batches} padded to captured sizes" if batches else ""
        sort = 1e6 * overhead.get("sort_s", 0.0)
        sorts = f" and {sort:.3g} us to sort its logits" if sort else ""
        times = f"{step_ms:.3g} ms per step, {sequence_us:.3g} us per sequence{sorts}{padded}"
        rows.append(("engine overhead", f"{times}: {overhead['source']}"))
    return rows


def _sources(summary: Mapping[str, Any]) -> str:
    """Return sources, changes and possible errors of the trace and the step times."""
    trace = section(summary, "trace")
    rows = [
        ("trace", f"{trace.get('name') or 'unknown'}: {trace.get('source') or 'source unknown'}"),
        ("changes to it", "; ".join(_labels(summary)) or "none"),
        ("estimated step time" if summary.get("real") else "step time", step_time_source(summary)),
        ("its error", step_time_error(summary)),
        *(("said of it", label) for label in step_time_labels(summary)),
        *_profile_rows(summary),
        ("engine imitated", str(summary.get("imitates") or "unknown")),
        *([("weights and KV", str(summary["precision"]))] if summary.get("precision") else []),
        ("KV memory of a replica", str(summary.get("kv_capacity") or "unknown")),
        *([("GPUs of a replica", str(summary["parallelism"]))] if summary.get("parallelism") else []),
        *(
            (f"start, {term}", str(source))
            for term, source in section(section(summary, "starts"), "sources").items()
        ),
    ]
    return card("Where the numbers come from", named_rows(rows, "from sources"))
