"""Results of a sweep's points: one row per point, means over seeds, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.config.whole_file import whole_file
from servetwin.sweeps.axes import SweepAxis
from servetwin.sweeps.confidence import Interval, interval_of
from servetwin.sweeps.outcome import PointOutcome
from servetwin.sweeps.points import Point

SEED: Final = "seed"
METRICS: Final = (
    "slo.attainment", "ttft_ms.p99", "ttft_ms.mean", "tpot_ms.mean", "tpot_ms.p99", "e2e_ms.p99",
    "slo.goodput_req_per_s", "gpu_seconds",
)  # fmt: skip
Values = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SweepRuns:
    """Points in order, and their outcomes."""

    axes: tuple[SweepAxis, ...]
    points: tuple[Point, ...]
    outcomes: tuple[PointOutcome, ...]

    def rows(self) -> Iterable[tuple[Point, PointOutcome]]:
        """Yield the points that ran."""
        return (row for row in zip(self.points, self.outcomes, strict=True) if not row[1].refused)

    def refused(self) -> list[tuple[Point, str]]:
        """Return the points that were refused, and why."""
        pairs = zip(self.points, self.outcomes, strict=True)
        return [(point, outcome.refused) for point, outcome in pairs if outcome.refused]

    def settings(self) -> list[Values]:
        """Return the values of all axes except the seed, each once, in order."""
        return list(dict.fromkeys(setting_of(point) for point in self.points))

    def copied(self) -> frozenset[Values]:
        """Return the settings of several seeds that all gave the same run: nothing in them is drawn."""
        return frozenset(
            setting
            for setting, runs in self._numbers().items()
            if len(runs) > 1 and all(run == next(iter(runs.values())) for run in runs.values())
        )

    def drawn(self) -> frozenset[Values]:
        """Return the settings of several seeds that gave different runs: only these have an interval."""
        several = {setting for setting, runs in self._numbers().items() if len(runs) > 1}
        return frozenset(several - self.copied())

    def _numbers(self) -> dict[Values, dict[str, dict[str, float]]]:
        """Map setting to seed to every number."""
        by_setting: dict[Values, dict[str, dict[str, float]]] = {}
        for point, outcome in self.rows():
            by_setting.setdefault(setting_of(point), {})[_seed(point)] = outcome.numbers
        return by_setting

    def by_seed(self, metric: str) -> dict[Values, dict[str, float]]:
        """Map setting to seed to the number, without points that lack it."""
        by_setting: dict[Values, dict[str, float]] = {}
        for point, outcome in self.rows():
            if metric in outcome.numbers:
                by_setting.setdefault(setting_of(point), {})[_seed(point)] = outcome.numbers[metric]
        return by_setting


def setting_of(point: Point) -> Values:
    """Return the point's values without the seed."""
    return tuple((key, text) for key, text in point.values if key != SEED)


def means(sweep: SweepRuns, metric: str) -> dict[Values, Interval]:
    """Map setting to mean and 95 % interval over its seeds; copies of one run count once."""
    copied = sweep.copied()
    return {
        setting: _interval(list(of.values()), setting in copied)
        for setting, of in sweep.by_seed(metric).items()
    }


def differences(sweep: SweepRuns, metric: str, axis: str) -> dict[Values, Interval]:
    """Map setting to its difference from the same setting with the axis's first value, seed by seed.

    The same seed has the same arrivals, so differences vary far less than their terms.
    """
    first = next(swept.texts[0] for swept in sweep.axes if swept.key == axis)
    base_of = {
        setting: tuple((key, first if key == axis else text) for key, text in setting)
        for setting in sweep.by_seed(metric)
        if dict(setting)[axis] != first
    }
    return _paired(sweep, metric, base_of)


def above(sweep: SweepRuns, metric: str, base: Values) -> dict[Values, Interval]:
    """Map every other setting to its difference from ``base``, seed by seed."""
    return _paired(sweep, metric, {other: base for other in sweep.by_seed(metric) if other != base})


def _paired(sweep: SweepRuns, metric: str, base_of: Mapping[Values, Values]) -> dict[Values, Interval]:
    """Map each setting to its difference from its base over the seeds that both have."""
    by_seed, copied, result = sweep.by_seed(metric), sweep.copied(), dict[Values, Interval]()
    for setting, base in base_of.items():
        of_base = by_seed.get(base, {})
        pairs = [value - of_base[seed] for seed, value in by_seed[setting].items() if seed in of_base]
        if pairs:
            result[setting] = _interval(pairs, setting in copied and base in copied)
    return result


def _interval(values: Sequence[float], copied: bool) -> Interval:
    return interval_of(values[:1] if copied else values)


def write_table(sweep: SweepRuns, path: Path) -> None:
    """Write Parquet, one row per point: values, refusal, numbers; the same on every machine."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for outcome in sweep.outcomes for name in outcome.numbers))
    columns: dict[str, list[Any]] = {
        axis.key: [dict(point.values)[axis.key] for point in sweep.points] for axis in sweep.axes
    }
    columns = {key: typed(values) for key, values in columns.items()}
    columns["refused"] = [outcome.refused for outcome in sweep.outcomes]
    for name in names:
        columns[name] = [outcome.numbers.get(name) for outcome in sweep.outcomes]
    with whole_file("out", path) as half, half.open("wb") as file:
        pq.write_table(pa.table(columns), file)


def typed(texts: Sequence[str]) -> list[Any]:
    """Return numbers if all texts are numbers, so that they sort and plot as such."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return list(texts)
    if not all(math.isfinite(value) for value in numbers):
        return list(texts)
    return [int(value) for value in numbers] if all(map(float.is_integer, numbers)) else numbers


def write_means(sweep: SweepRuns, path: Path, metrics: Sequence[str] = ()) -> None:
    """Write CSV, one row per setting and number of the table: seeds, mean, lower and upper end."""
    import csv

    keys = [axis.key for axis in sweep.axes if axis.key != SEED]
    names = metrics or list(dict.fromkeys(name for outcome in sweep.outcomes for name in outcome.numbers))
    with whole_file("out", path) as half, half.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*keys, "metric", "seeds", "mean", "low", "high"])
        for name in names:
            for setting, mean in means(sweep, name).items():
                ends = ["" if end is None else repr(end) for end in (mean.low, mean.high)]
                out.writerow([*(text for _, text in setting), name, mean.count, repr(mean.mean), *ends])


def _seed(point: Point) -> str:
    return dict(point.values).get(SEED, "")
