"""The part of a run's report that shows when instances were started and released, and why."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

import numpy as np

from servetwin.report import plots
from servetwin.report.figures import figure
from servetwin.report.number_text import NOTHING, count, duration, is_known, number, section
from servetwin.report.page_parts import charts, head, pairs, table
from servetwin.report.table import OBSTACLES, live_facts

Event = Mapping[str, Any]

ROLES: Final = ("prefill", "decode", "both")
# With more rows, only the first and the last are on the page; summary.json has all of them.
MOST_ROWS: Final = 200
# With more changes of the number of instances a plot shows equal stretches of time.
_MOST_STEPS: Final = 240
_COMES: Final = ("load", "revive")
_GOES: Final = ("released", "lost")
_MEANING: Final = {
    "load": "parameters are sent to free GPUs",
    "ready": "the instance starts serving",
    "cancel_drain": "a draining instance takes requests again",
    "revive": "a released instance serves again: its parameters were still on its GPUs",
    "mutate": "the instance changes its role",
    "limit_batch": "the instance runs at most another number of requests",
    "drain": "the instance takes no new requests",
    "released": "the instance is empty and its GPUs are free",
    "shortage": "wanted instances could not be started",
    **{f"shortage, {key}": text for key, text in OBSTACLES.items()},
    "terminating": "the instance is to be lost and takes no new requests",
    "lost": "the instance failed",
    "mark_key": "which stages of a model are key stages from now on",
    "keep_copy": "the host keeps the parameters of a stage in its memory",
    "evict_copy": "the host forgets its copy of a stage",
    "recut": "a model has other layers for its stages",
}


def scaling(summary: Mapping[str, Any]) -> str:
    """Return the section Scaling as HTML; empty for a run without scaling."""
    looks = section(summary, "decisions").get("count")
    events = [event for event in summary.get("scale_events") or () if isinstance(event, Mapping)]
    if not looks and not events:
        return ""
    figures = [instances_plot(events, summary)] if events else []
    moves = _table(events) if events else '<div class="card soft">No instance was started or released.</div>'
    facts = f'<div class="card" style="margin:14px 0">{pairs(_facts(summary, events))}</div>'
    return charts("Scaling", figures) + facts + moves


def instance_steps(
    events: Sequence[Event], mean_by_role: Mapping[str, float], span_s: float
) -> dict[str, tuple[plots.Floats, plots.Floats]]:
    """Role -> (seconds, instances from then on). An instance counts from the load decision until it is freed.

    The number at the start is derived from the mean, as events contain only changes.
    """
    steps = {}
    for role in ROLES:
        moves = [(min(float(at_s), span_s), change) for at_s, change in _changes(events, role)]
        if not moves and not mean_by_role.get(role):
            continue
        grown = sum(change * (span_s - at_s) for at_s, change in moves)
        start = round(mean_by_role.get(role, 0.0) - grown / span_s) if span_s else 0
        times = np.array([0.0, *(at_s for at_s, _ in moves)])
        steps[role] = times, np.cumsum([float(start), *(change for _, change in moves)])
    return steps


def at_common_times(
    steps: Mapping[str, tuple[plots.Floats, plots.Floats]],
) -> tuple[plots.Floats, dict[str, plots.Floats]]:
    """Return the times at which any role changes, and how many instances each has from then on."""
    times = np.unique(np.concatenate([x for x, _ in steps.values()]))
    return times, {role: y[np.searchsorted(x, times, side="right") - 1] for role, (x, y) in steps.items()}


def _changes(events: Sequence[Event], role: str) -> Iterator[tuple[float, int]]:
    for event in events:
        act, own = event["act"], event["role"] == role
        if act == "mutate" and role != "both":  # switches to the other role
            yield event["t_s"], 1 if own else -1
        elif own and act in (*_COMES, *_GOES):
            yield event["t_s"], 1 if act in _COMES else -1


def instances_plot(events: Sequence[Event], summary: Mapping[str, Any]) -> str:
    """Draw how many instances of each role there are, one role above the other; empty for a run without any.

    With many changes: means of equal stretches of time, and the least and most instances in each.
    """
    span_s = float(summary.get("duration_s") or 0.0)
    mean_by_role = section(section(summary, "instances"), "mean_by_role")
    steps = instance_steps(events, mean_by_role, span_s)
    if not steps:
        return ""
    time, unit_s = plots.time_axis(span_s)
    times, held = at_common_times(steps)
    detail, few = "from the wish to load until the GPUs are free again", len(times) <= _MOST_STEPS
    band = None if few else _least_and_most(times, np.sum(list(held.values()), axis=0), span_s)
    if not few:
        held = {role: _means(times, values, span_s) for role, values in held.items()}
        times = _stretches(span_s)[:-1]
        detail = f"{detail}; means of stretches of {duration(1e3 * span_s / _MOST_STEPS)}"
    drawn, top = list[plots.Band](), np.zeros(len(times))
    for role, values in held.items():
        color = ROLES.index(role) + 1
        drawn.append(plots.Band(role, times / unit_s, top, top + values, color))
        top = top + values
    if band is not None:
        free = next(color for color in (3, 2, 1) if ROLES[color - 1] not in held)
        label = "all: least and most"
        drawn.append(plots.Band(label, times / unit_s, *band, free))
    height = plots.linear_axis("", *(line.y for line in drawn), whole=True)
    svg = plots.line_plot("Instances by role", drawn, time, height, width=plots.WIDE)
    key = [(line.color, line.label) for line in drawn]
    return figure("Instances by role", detail, svg, key, wide=True)


def _stretches(span_s: float) -> plots.Floats:
    """Return the bounds of ``_MOST_STEPS`` equal stretches of the run."""
    return np.linspace(0.0, span_s, _MOST_STEPS + 1)


def _means(times: plots.Floats, values: plots.Floats, span_s: float) -> plots.Floats:
    """Return the mean over each stretch of a number that is ``values`` from each of ``times`` on."""
    ends = np.append(times[1:], span_s)
    area = np.append(0.0, np.cumsum(values * (ends - times)))
    bounds = _stretches(span_s)
    below: plots.Floats = np.diff(np.interp(bounds, np.append(times, span_s), area)) / np.diff(bounds)
    return below


def _least_and_most(
    times: plots.Floats, values: plots.Floats, span_s: float
) -> tuple[plots.Floats, plots.Floats]:
    """Return the least and the most of the number within each stretch."""
    bounds = _stretches(span_s)
    first = np.searchsorted(times, bounds[:-1], side="right") - 1
    end = np.maximum(np.searchsorted(times, bounds[1:], side="left"), first + 1)
    parts = [values[one:other] for one, other in zip(first, end, strict=True)]
    return np.array([part.min() for part in parts]), np.array([part.max() for part in parts])


def _facts(summary: Mapping[str, Any], events: Sequence[Event]) -> list[tuple[str, str]]:
    loads, tiers = section(summary, "loads"), section(section(summary, "loads"), "bytes_by_tier")
    seconds, host = loads.get("seconds") or {}, section(summary, "host_cache_bytes")
    cache, looks = section(summary, "cache"), section(summary, "decisions")
    took = f"{_seconds(seconds.get('mean'))}, slowest {_seconds(seconds.get('max'))}"
    roles = section(section(summary, "instances"), "mean_by_role")
    return [
        *((f"mean {role} instances", number(mean)) for role, mean in roles.items()),
        ("load targets", f"{count(loads.get('count'))} complete, {count(loads.get('stopped'))} stopped"),
        ("time of a load, mean", took),
        *((f"loaded from {_FROM.get(tier, tier)}", _bytes(size)) for tier, size in tiers.items() if size),
        *live_facts(section(summary, "live")),
        ("host memory for copies", f"mean {_bytes(host.get('mean'))}, most {_bytes(host.get('max'))}"),
        (
            "host cache look-ups",
            f"{count(cache.get('hits'))} hits, {count(cache.get('misses'))} misses",
        ),
        ("checks of the load monitor", count(looks.get("count"))),
        ("CPU time of a check, P99", duration(looks.get("cpu_ms_p99"))),
        *((f"{act}: {_MEANING.get(act, '')}", count(times)) for act, times in _times(events)),
    ]


_FROM: Final = {"gpu": "other instances", "host": "host memory", "ssd": "SSD", "remote": "remote storage"}


def _times(events: Sequence[Event]) -> list[tuple[str, int]]:
    """Count the events by act, failed ones also by obstacle."""
    acts = [
        f"{event['act']}, {event['obstacle']}" if event.get("obstacle") else str(event["act"])
        for event in events
    ]
    return sorted(Counter(acts).items(), key=lambda item: -item[1])


def _table(events: Sequence[Event]) -> str:
    """Tabulate decisions and outcomes; consecutive ones that differ only in the instance share a row."""
    rows = [
        (key, [event.get("replica") for event in same])
        for key, same in groupby(events, lambda event: tuple(event.get(name) for name in _SAME))
    ]
    left_out = len(rows) - MOST_ROWS
    half = MOST_ROWS // 2
    shown = [_row(*row) for row in (rows if left_out <= 0 else rows[:half])]
    if left_out > 0:
        note = f"{count(left_out)} rows are left out here: summary.json has all {count(len(events))} events"
        shown += [
            f'<tr><td class="text soft" colspan="6">{note}</td></tr>',
            *(_row(*row) for row in rows[-half:]),
        ]
    names = ("Time", "What", "Instance", "Role", "Model", "Reason")
    lines = [head(names, range(1, len(names)), "head"), *shown]
    return f'<div class="card scroll">{table(lines, "from blocks")}</div>'


_WHOLE: Final = " whole"  # one word, so that it is not broken
_SAME: Final = ("t_s", "act", "role", "model", "reason")


def _row(key: tuple[Any, ...], replicas: Sequence[Any]) -> str:
    t_s, act, role, model, reason = key
    named = ", ".join(str(replica) for replica in replicas if replica is not None) or NOTHING
    cells = "".join(
        f'<td class="text{kind}" data-name="{name}"><span>{escape(str(text))}</span></td>'
        for name, text, kind in (
            ("What", act, _WHOLE),
            ("Instance", named, ""),
            ("Role", role, _WHOLE),
            ("Model", model, _WHOLE),
            ("Reason", reason, ""),
        )
    )
    return f'<tr><td class="name">{_seconds(t_s)}</td>{cells}</tr>'


def _seconds(value: Any) -> str:
    return duration(1000 * value) if is_known(value) else NOTHING


def _bytes(size: Any) -> str:
    """Return a size in GB, the usual unit of memory and parameters."""
    return f"{number(size / 1e9)} GB" if is_known(size) else NOTHING
