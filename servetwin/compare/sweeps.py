"""Compares sweeps: points that both the first and another sweep have, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.compare.sweep_table import SweepTable, Values, sweep_table, words_apart
from servetwin.sweeps.confidence import Interval, interval_of
from servetwin.sweeps.headline import is_given
from servetwin.sweeps.table import METRICS, SEED
from serving.vocabulary.errors import UserError

_NAMED: Final = 4  # values of a key in an error message
Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Against:
    """Another sweep against the first. ``points``: the number of points that both have.

    ``left_out``: the numbers of points that only the first, and only the other has. ``means``: the means over
    the other's points; ``differences``: other minus first. Both are by setting of the first sweep and by
    metric. ``words``: the words that only the first, and only the other has.
    """

    points: int
    left_out: tuple[int, int]
    means: dict[Values, dict[str, Interval]]
    differences: dict[Values, dict[str, Interval]]
    words: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SweepsBeside:
    """Compared sweeps. ``means``: the means of the first, by setting (its values without seed) and metric."""

    names: tuple[str, ...]
    metrics: tuple[str, ...]
    means: dict[Values, dict[str, Interval]]
    against: tuple[Against, ...]


def sweeps_beside(folders: Sequence[Path], names: Sequence[str]) -> SweepsBeside:
    """Compare at least two sweeps. UserError if one shares no point with the first."""
    first, *rest = map(sweep_table, folders)
    tables = [first, *rest]
    metrics = tuple(metric for metric in METRICS if any(metric in table.frame.columns for table in tables))
    rows = {
        setting: list(of.values()) for setting, of in _rows_by_setting(first, range(len(first.frame))).items()
    }
    means = {}
    for setting, of in rows.items():
        runs = [_numbers(first, row, metrics) for row in of]
        means[setting] = _means([run for run, _ in _distinct_seeds([(run, run) for run in runs])])
    against = tuple(_against(first, other, metrics) for other in rest)
    return SweepsBeside(_named(names, tables), metrics, means, against)


def _named(names: Sequence[str], tables: Sequence[SweepTable]) -> tuple[str, ...]:
    """Return the names with the values of settings of which another sweep has none in common."""
    keys = list(dict.fromkeys(axis for table in tables for axis in table.axes if not _is_condition(axis)))
    places = [_places(table, keys) for table in tables]
    apart = [key for key in keys if any(_are_apart(places[0], other, key) for other in places[1:])]
    if not apart:
        return tuple(names)
    values = [{key: _values(of, key) for key in apart} for of in places]
    return tuple(
        f"{name} ({', '.join(f'{key}={_several(of[key])}' for key in apart)})"
        for name, of in zip(names, values, strict=True)
    )


def _are_apart(ours: Iterable[Values], theirs: Iterable[Values], key: str) -> bool:
    return not _values(ours, key).keys() & _values(theirs, key).keys()


def _against(first: SweepTable, other: SweepTable, metrics: Sequence[str]) -> Against:
    """Match points by their values of every key that either sweep varies.

    A setting of which they share no value is what is compared: points are then matched without it.
    """
    keys = list(dict.fromkeys((*first.axes, *other.axes)))
    ours, theirs = _places(first, keys), _places(other, keys)
    keys = [key for key in keys if _is_condition(key) or not _are_apart(ours, theirs, key)]
    of_other = _by(keys, theirs)
    found = {row: (values, of_other.get(_only(keys, values), [])) for values, row in ours.items()}
    for values, rows in found.values():
        if len(rows) > 1:
            raise UserError(_ambiguous(first, other, keys, values))
    of_first = {row: rows[0] for row, (_, rows) in found.items() if rows}
    if not of_first:
        raise UserError(
            f"{first.folder} and {other.folder} have no point in common: {_why(keys, ours, theirs)}"
        )
    means, apart = dict[Values, dict[str, Interval]](), dict[Values, dict[str, Interval]]()
    for setting, seeds in _rows_by_setting(first, of_first).items():
        matched = [(at, of_first[at]) for at in seeds.values()]
        by_seed = _distinct_seeds(
            [(_numbers(first, at, metrics), _numbers(other, to, metrics)) for at, to in matched]
        )
        means[setting], apart[setting] = _means([to for _, to in by_seed]), _apart(by_seed)
    left_out = len(ours) - len(of_first), len(theirs) - len(set(of_first.values()))
    return Against(len(of_first), left_out, means, apart, words_apart(first, other))


def _places(table: SweepTable, keys: Sequence[str]) -> dict[Values, int]:
    return {table.values_at(row, keys): row for row in range(len(table.frame))}


def _is_condition(key: str) -> bool:
    return key == SEED or is_given(key)


def _values(places: Iterable[Values], key: str) -> dict[Any, None]:
    return {dict(values)[key]: None for values in places}


def _only(keys: Sequence[str], values: Values) -> Values:
    return tuple(pair for pair in values if pair[0] in keys)


def _by(keys: Sequence[str], places: Mapping[Values, int]) -> dict[Values, list[int]]:
    rows: dict[Values, list[int]] = {}
    for values, row in places.items():
        rows.setdefault(_only(keys, values), []).append(row)
    return rows


def _ambiguous(first: SweepTable, other: SweepTable, keys: Sequence[str], values: Values) -> str:
    """Return the sentence for a point of the first sweep that several of the other could be paired with."""
    several = " and ".join(key for key, _ in values if key not in keys)
    return (
        f"{first.folder} and {other.folder} share no value of {several}, and {other.folder} has several "
        f"settings of it: name {other.folder} first, or sweep each of its settings into a folder of its own"
    )


def _rows_by_setting(table: SweepTable, rows: Iterable[int]) -> dict[Values, dict[Any, int]]:
    """Map setting without the seed to seed to row."""
    counts: dict[Values, dict[Any, int]] = {}
    for row in rows:
        values = table.values_at(row, table.axes)
        setting = tuple(pair for pair in values if pair[0] != SEED)
        counts.setdefault(setting, {})[dict(values).get(SEED)] = row
    return counts


def _distinct_seeds(pairs: Sequence[tuple[Numbers, Numbers]]) -> list[tuple[Numbers, Numbers]]:
    """Return a single pair if every seed gave the same: copies of a run carry no random variation."""
    return list(pairs[:1] if all(pair == pairs[0] for pair in pairs) else pairs)


def _numbers(table: SweepTable, row: int, metrics: Sequence[str]) -> Numbers:
    pairs = ((metric, _number(table, row, metric)) for metric in metrics)
    return {metric: value for metric, value in pairs if value is not None}


def _number(table: SweepTable, row: int, metric: str) -> float | None:
    if metric not in table.frame.columns:
        return None
    value = float(table.frame[metric].iloc[row])
    return value if value == value else None


def _means(runs: Sequence[Numbers]) -> dict[str, Interval]:
    metrics = dict.fromkeys(metric for run in runs for metric in run)
    return {metric: interval_of([run[metric] for run in runs if metric in run]) for metric in metrics}


def _apart(pairs: Sequence[tuple[Numbers, Numbers]]) -> dict[str, Interval]:
    return _means([{name: to[name] - value for name, value in at.items() if name in to} for at, to in pairs])


def _why(keys: Sequence[str], ours: Mapping[Values, int], theirs: Mapping[Values, int]) -> str:
    """Return the first key without a common value, and what to do."""
    for key in keys:
        left, other = _values(ours, key), _values(theirs, key)
        if not left.keys() & other.keys():
            return (
                f"{key} is {_several(left)} and {_several(other)}: compare sweeps over the same values of it"
            )
    return "no combination of values is in both: compare sweeps over the same values"


def _several(values: Mapping[Any, None]) -> str:
    named = [str(value) for value in list(values)[:_NAMED]]
    return ",".join(named) + (",..." if len(values) > _NAMED else "")
