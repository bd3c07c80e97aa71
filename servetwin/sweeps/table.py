"""Results of a sweep's points: one row per point, means over seeds, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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

    def seeds_are_one(self) -> bool:
        """Return whether all seeds gave the same run: nothing is drawn, as with a recorded trace."""
        by_setting: dict[Values, list[dict[str, float]]] = {}
        for point, outcome in self.rows():
            by_setting.setdefault(setting_of(point), []).append(outcome.numbers)
        several = [runs for runs in by_setting.values() if len(runs) > 1]
        return bool(several) and all(run == runs[0] for runs in several for run in runs)

    def by_seed(self, metric: str) -> dict[Values, dict[str, float]]:
        """Map setting to seed to the number, without points that lack it and without copies of a run."""
        by_setting: dict[Values, dict[str, float]] = {}
        alike = self.seeds_are_one()
        for point, outcome in self.rows():
            if metric in outcome.numbers and not (alike and setting_of(point) in by_setting):
                by_setting.setdefault(setting_of(point), {})[_seed(point)] = outcome.numbers[metric]
        return by_setting


def setting_of(point: Point) -> Values:
    """Return the point's values without the seed."""
    return tuple((key, text) for key, text in point.values if key != SEED)


def means(sweep: SweepRuns, metric: str) -> dict[Values, Interval]:
    """Map setting to mean and 95 % interval over its seeds."""
    return {setting: interval_of(list(of.values())) for setting, of in sweep.by_seed(metric).items()}


def differences(sweep: SweepRuns, metric: str, axis: str) -> dict[Values, Interval]:
    """Map setting to its difference from the same setting with the axis's first value, seed by seed.

    The same seed has the same arrivals, so differences vary far less than their terms.
    """
    first = next(swept.texts[0] for swept in sweep.axes if swept.key == axis)
    by_seed, result = sweep.by_seed(metric), {}
    for setting, values in by_seed.items():
        base = by_seed.get(tuple((key, first if key == axis else text) for key, text in setting), {})
        pairs = [value - base[seed] for seed, value in values.items() if seed in base]
        if pairs and dict(setting)[axis] != first:
            result[setting] = interval_of(pairs)
    return result


def above(sweep: SweepRuns, metric: str, base: Values) -> dict[Values, Interval]:
    """Map every other setting to its difference from ``base``, seed by seed."""
    by_seed = sweep.by_seed(metric)
    pairs = {
        setting: [value - by_seed[base][seed] for seed, value in values.items() if seed in by_seed[base]]
        for setting, values in by_seed.items()
        if setting != base
    }
    return {setting: interval_of(values) for setting, values in pairs.items() if values}


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
