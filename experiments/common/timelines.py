"""What a run did over time, in few points: instances, and tokens of KV that its requests hold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from servetwin.report.number_text import section
from servetwin.report.scaling import instance_steps
from servetwin.results.series_table import KV_GAUGE, TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Line = tuple[Floats, Floats]

STEP_S: Final = 1.0
KV_SHARES: Final = "kv_shares"
_NS_PER_S: Final = 1e9
_STAYS: Final = {"revive": 1, "cancel_drain": 1, "drain": -1}
_CHANGES: Final = {"ready": {"ready": 1, **_STAYS}, "wanted": {"load": 1, **_STAYS}}


def timelines_of(columns: "Mapping[str, NDArray[Any]]", summary: Mapping[str, Any]) -> "dict[str, Line]":
    """``kv_tokens`` and ``instances`` every second; a static system's instances do not change."""
    span_s = float(summary.get("duration_s") or 0.0)
    at_s = np.arange(0.0, span_s + STEP_S, STEP_S)
    return {"kv_tokens": (at_s, kv_tokens(columns, at_s)), "instances": (at_s, instances(summary, at_s))}


def replica_changes_of(summary: Mapping[str, Any]) -> "dict[str, Line]":
    """``ready ROLE``, ``wanted ROLE``: how many more (fewer) replicas than at the start, from each time on.

    Ready: those that take requests. Wanted: those that load too, as ``spec.replicas`` of a Deployment.
    """
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for event in summary.get("scale_events") or ():
        for name, changes in _CHANGES.items():
            if change := changes.get(event["act"]):
                at_s, count = lines.setdefault(f"{name} {event['role']}", ([0.0], [0.0]))
                at_s.append(float(event["t_s"]))
                count.append(count[-1] + change)
    return {name: (np.asarray(at_s), np.asarray(count)) for name, (at_s, count) in lines.items()}


def least_and_most(line: "Line | None", begin_s: float, end_s: float) -> tuple[int, int]:
    """Of such changes, from ``begin_s`` up to, not including, ``end_s``; 0 without a change."""
    if line is None:
        return 0, 0
    at_s, count = line
    first = int(np.searchsorted(at_s, begin_s, side="right")) - 1
    known = count[first : max(first + 1, int(np.searchsorted(at_s, end_s, side="left")))]
    return int(known.min()), int(known.max())


def kv_shares_of(series: "Mapping[str, Any] | None") -> "dict[str, Line]":
    """``kv_shares``: the share of KV memory in use, summed over the engines, at each instant."""
    if series is None:
        return {}
    at_s, row = np.unique(np.asarray(series[TIME]), return_inverse=True)
    shares = np.bincount(row, weights=np.nan_to_num(np.asarray(series[KV_GAUGE], dtype=np.float64)))
    return {KV_SHARES: (at_s, np.asarray(shares, dtype=np.float64))}


def kv_tokens(columns: "Mapping[str, NDArray[Any]]", at_s: "Floats") -> "Floats":
    """Tokens in the context of all requests between their first and last token, at each time.

    A request has its prompt from the first token on, and its output grows evenly until the last.
    """
    first, last = (columns[name] / _NS_PER_S for name in ("first_token_ns", "finish_ns"))
    prompt = columns["prompt_tokens"].astype(np.float64)
    growth = np.divide(columns["output_tokens"], last - first, out=np.zeros_like(first), where=last > first)
    held = _sum_until(first, prompt - growth * first, at_s) - _sum_until(last, prompt - growth * first, at_s)
    slope = _sum_until(first, growth, at_s) - _sum_until(last, growth, at_s)
    total: Floats = np.maximum(held + slope * at_s, 0.0)
    return total


def instances(summary: Mapping[str, Any], at_s: "Floats") -> "Floats":
    """Instances of all roles, from the wish to load until the GPUs are free again."""
    instances_of_run = section(summary, "instances")
    roles = section(instances_of_run, "mean_by_role")
    steps = instance_steps(summary.get("scale_events") or (), roles, float(summary.get("duration_s") or 0.0))
    total = np.zeros_like(at_s)
    for x, y in steps.values():
        total += y[np.maximum(np.searchsorted(x, at_s, side="right") - 1, 0)]
    if not steps:
        total += float(instances_of_run.get("mean") or 0.0)
    return total


def _sum_until(times_s: "Floats", values: "Floats", at_s: "Floats") -> "Floats":
    """Sum of the values whose time is not after ``at_s``."""
    order = np.argsort(times_s, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(values[order])))
    sums_until: Floats = sums[np.searchsorted(times_s[order], at_s, side="right")]
    return sums_until
