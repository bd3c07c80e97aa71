"""A record from series of monitoring: those of several instances become one column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from servetwin.advising.columns import COLUMNS, HITS, REPLICAS, TPOT, TTFT, column_of, columns_word
from servetwin.advising.metric_names import ENGINES, FOUND, LOOKED_UP, METRICS, PER_INSTANCE, metric_of
from servetwin.advising.record import Record, record_of
from servetwin.advising.time_series import (
    Floats,
    TimeSeries,
    grown,
    in_window,
    instants_of,
    level,
    per_s,
    quantile,
)
from serving.vocabulary.errors import UserError

WINDOW_S: Final = 60.0
"""Latencies and lengths of a histogram are those of so many seconds before each instant."""
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_MOST_NAMED: Final = 4
_MODEL: Final = ("model_name", "model")


def record_of_series(place: str, series: Sequence[TimeSeries], can_rename: bool = False) -> Record:
    """Return the record. ``can_rename``: ``columns=`` may say what an unread one is.

    UserError for series of several models, or without a number of instances.
    """
    _refuse_many_models(place, series)
    _refuse_many_workloads(place, series)
    by_metric, panels, unread = dict[str, list[TimeSeries]](), dict[str, list[TimeSeries]](), list[str]()
    for one in series:
        if (metric := metric_of(one.name)) is not None:
            kept = by_metric.setdefault(metric[0], [])
        elif column_of(one.name) is not None:
            kept = panels.setdefault(one.name, [])
        else:
            unread.append(one.name or "a series without a name")
            continue
        if np.isfinite(one.values).any():
            kept.append(one)
    read = [one for some in (*by_metric.values(), *panels.values()) for one in some]
    if not read:
        word = columns_word(unread, ()) if can_rename else ""
        raise UserError(
            f"{place} has no metric that is known ({', '.join(dict.fromkeys(unread[:4]))}): name vLLM's or "
            f"SGLang's, such as {next(iter(METRICS))}, or a column such as {', '.join(list(COLUMNS)[:4])}"
            + (f"; or write {word}" if word else "")
        )
    at_s, told = instants_of(read), list[str]()
    columns, of_instances = _columns(by_metric, at_s, told)
    for name, some in panels.items():
        if not some:
            continue
        columns[column_of(name)[0]] = _panel(name, some, at_s)  # type: ignore[index]
    if REPLICAS not in columns and of_instances:
        columns[REPLICAS] = _instances(of_instances)
        if "ready" not in columns:
            told.append("replicas: the instances that report metrics")
    if unread:
        word = columns_word(unread, columns) if can_rename else ""
        told.append(f"not read: {', '.join(dict.fromkeys(unread))}" + (f"; to read: {word}" if word else ""))
    record = record_of(place, at_s, columns, of_instances, told)
    return replace(record, measured=_measured(by_metric, at_s), software=_software(by_metric))


def _refuse_many_models(place: str, series: Sequence[TimeSeries]) -> None:
    for label in _MODEL:
        models = dict.fromkeys(one.labels[label] for one in series if one.labels.get(label))
        if len(models) > 1:
            first, *_ = models
            raise UserError(
                f"{place} has series of the models {', '.join(models)}: save those of one, with "
                f'{{{label}="{first}"}} in every query'
            )


def _refuse_many_workloads(place: str, series: Sequence[TimeSeries]) -> None:
    """Refuse replicas of several Deployments or StatefulSets: kube-state-metrics has those of the cluster."""
    for kind in ("deployment", "statefulset"):
        of_kind = [one for one in series if one.name.startswith(f"kube_{kind}_") and one.labels.get(kind)]
        names = dict.fromkeys((one.labels.get("namespace", ""), one.labels[kind]) for one in of_kind)
        if len(names) > 1:
            (namespace, first), *_ = names
            told = ", ".join("/".join(filter(None, name)) for name in list(names)[:_MOST_NAMED])
            labels = f'{kind}="{first}"' + (f',namespace="{namespace}"' if namespace else "")
            raise UserError(
                f"{place} has replicas of {len(names)} {kind}s ({told}): save those of one, with "
                f"{{{labels}}} in the query of kube_{kind}_status_replicas"
            )


def _columns(
    by_metric: Mapping[str, list[TimeSeries]], at_s: Floats, told: list[str]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the columns, and those of each instance. The first metric of a column is taken."""
    columns, of_instances = dict[str, Floats](), dict[str, Floats]()
    taken = dict[str, str]()
    for name in METRICS:
        column, kind = METRICS[name]
        some = by_metric.get(name)
        if not some or column in taken:
            continue
        taken[column] = name
        if kind == "histogram":
            columns |= _latencies(column, some, at_s)
        elif kind == "lengths":
            columns[column] = _mean(some, at_s)
        elif kind == "rate":
            columns[column] = per_s(grown(some, at_s), at_s)
        else:
            rows = _rows(some, at_s)
            columns[column] = _together(rows, kind == "mean")
            if column in PER_INSTANCE and all(one.instance for one in some):
                of_instances[column] = rows
    if FOUND in columns and LOOKED_UP in columns:
        looked_up = np.maximum(columns.pop(LOOKED_UP), 1e-12)
        columns[HITS] = np.minimum(1.0, columns.pop(FOUND) / looked_up)
    columns = {name: values for name, values in columns.items() if name in COLUMNS}
    if taken.get(TPOT) == "vllm:inter_token_latency_seconds":
        told.append(
            "tpot: gaps between tokens (vllm:inter_token_latency_seconds), of all tokens and not by request"
        )
    return columns, _same_rows(by_metric, of_instances, taken, at_s)


def _same_rows(
    by_metric: Mapping[str, list[TimeSeries]],
    of_instances: Mapping[str, Floats],
    taken: Mapping[str, str],
    at_s: Floats,
) -> dict[str, Floats]:
    """Return the columns of instances with the same instance in the same row of each."""
    names = sorted({one.instance for column in of_instances for one in by_metric[taken[column]]})
    missing = np.full(len(at_s), np.nan)
    lined = {}
    for column in of_instances:
        rows = {one.instance: level(one, at_s) for one in _by_instance(by_metric[taken[column]])}
        lined[column] = np.array([rows.get(name, missing) for name in names])
    return lined


def _by_instance(series: Sequence[TimeSeries]) -> list[TimeSeries]:
    """Join the series of one instance: other labels of it may have changed in the middle."""
    joined: dict[tuple[str, ...], TimeSeries] = {}
    for place, one in enumerate(series):
        key = one.instance or (str(place),)
        before = joined.get(key)
        if before is None:
            joined[key] = one
            continue
        at_s, values = np.concatenate((before.at_s, one.at_s)), np.concatenate((before.values, one.values))
        at_s, first = np.unique(at_s, return_index=True)
        joined[key] = replace(before, at_s=at_s, values=values[first])
    return list(joined.values())


def _rows(series: Sequence[TimeSeries], at_s: Floats) -> Floats:
    return np.array([level(one, at_s) for one in _by_instance(series)])


def _together(rows: Floats, average: bool) -> Floats:
    """Return the sum or the mean of the instances that are known at each instant; NaN without any."""
    count = np.isfinite(rows).sum(axis=0)
    total = np.nansum(rows, axis=0)
    return np.where(count > 0, total / np.maximum(count, 1) if average else total, np.nan)


def _instances(of_instances: Mapping[str, Floats]) -> Floats:
    """Return how many instances report anything."""
    there = np.any([np.isfinite(rows) for rows in of_instances.values()], axis=0)
    counted: Floats = there.sum(axis=0).astype(np.float64)
    return counted


def _panel(name: str, series: Sequence[TimeSeries], at_s: Floats) -> Floats:
    """Return a column that a query computed. UserError if it has several series."""
    if len(series) > 1:
        raise UserError(
            f"{series[0].place} and {len(series) - 1} more are all named {name}: write sum(...) or avg(...) "
            "around the query, so that it has one series"
        )
    _, factor = column_of(name) or (name, 1.0)
    return level(series[0], at_s) * factor


def _latencies(kind: str, series: Sequence[TimeSeries], at_s: Floats) -> dict[str, Floats]:
    """Return ``ttft_mean_ms`` and so on, as far as the parts of the histogram are there."""
    columns = {}
    if (mean := _mean(series, at_s)) is not None and np.isfinite(mean).any():
        columns[f"{kind}_mean_ms"] = 1000 * mean
    if buckets := _buckets(series):
        limits = sorted(buckets)
        window_s = max(WINDOW_S, 2 * max(one.step_s for some in buckets.values() for one in some))
        counts = np.array([in_window(grown(buckets[limit], at_s), at_s, window_s) for limit in limits])
        for name, share in _QUANTILES.items():
            columns[f"{kind}_{name}_ms"] = 1000 * quantile(share, np.array(limits), counts)
    return columns


def _software(by_metric: Mapping[str, list[TimeSeries]]) -> str:
    """Return the engine of which metrics were read, "" if of none or of both."""
    prefixes = {name.partition(":")[0] for name, some in by_metric.items() if some}
    engines = [name for name in ENGINES if name in prefixes]
    return engines[0] if len(engines) == 1 else ""


def _buckets(series: Sequence[TimeSeries]) -> dict[float, list[TimeSeries]]:
    """Return the series of each bucket by its limit; none if the infinite one or all others are missing."""
    buckets: dict[float, list[TimeSeries]] = {}
    for one in series:
        if one.name.endswith("_bucket") and "le" in one.labels:
            buckets.setdefault(float(one.labels["le"]), []).append(one)
    return buckets if len(buckets) > 1 and max(buckets) == np.inf else {}


def _measured(by_metric: Mapping[str, list[TimeSeries]], at_s: Floats) -> dict[str, float]:
    """Return the TTFT P99 of all requests of the record, of the first histogram that has any."""
    for name, (column, kind) in METRICS.items():
        buckets = _buckets(by_metric.get(name, ())) if (column, kind) == (TTFT, "histogram") else {}
        if buckets:
            limits = sorted(buckets)
            counts = np.array([grown(buckets[limit], at_s)[-1:] for limit in limits])
            p99_s = float(quantile(_QUANTILES["p99"], np.array(limits), counts)[0])
            if np.isfinite(p99_s):
                return {"ttft_p99_ms": 1000 * p99_s}
    return {}


def _mean(series: Sequence[TimeSeries], at_s: Floats) -> Floats:
    """Return the mean of a histogram in the window before each instant; NaN without observations."""
    parts = []
    for ending in ("_sum", "_count"):
        some = [one for one in series if one.name.endswith(ending)]
        steps = [one.step_s for one in some]
        parts.append(in_window(grown(some, at_s), at_s, max(WINDOW_S, 2 * max(steps, default=0.0))))
    total, count = parts
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)
