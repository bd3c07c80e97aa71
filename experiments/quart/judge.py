"""Rows of QUART's figures: a mean over models and workloads, system beside system, seed by seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

from experiments.common.compare import joined, judged_row, pointed, ratios_of
from experiments.common.figure import MISSED, FigureRow, Key, MeasuredPoint
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import geometric_mean_of, mean_of, ratio_of
from experiments.common.sensitivity import held_at
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, in_order, judged_over
from experiments.quart.set_ups import SYSTEMS, Model, system
from servetwin.report.number_text import number

MetricOf = Callable[[Model], Metric]
Place = tuple[Model, SetUp]
Runs = dict[tuple[int, str], tuple[RunOutcome, ...]]
"""The runs of every system at a point of a sweep, by (number of the place, system)."""
CaseOf = Callable[[str, SetUp], Case]
Mean = Callable[[Runs, Sequence[int]], dict[str, float] | None]
"""The mean of each system over the places of these numbers."""


@dataclass(frozen=True, slots=True)
class MeanJudge:
    """Compares means over places. key: the key of the saved sweep with the numbers of the figure's rows.

    case_of: a system at a place.
    """

    outcomes: Outcomes
    key: Key
    case_of: CaseOf = system

    def values(self, metric: MetricOf, place: Place, name: str) -> list[float] | None:
        """Return the system's metric at the place, one value per seed."""
        model, set_up = place
        return metric(model).of(self.outcomes.of(self.case_of(name, set_up)))

    def means(
        self, metric: MetricOf, places: Sequence[Place], names: Sequence[str]
    ) -> dict[str, list[float]] | None:
        """Return each system's mean over the places, one per seed; None if a run lacks the number.

        Models and CVs count alike, however slow: the mean is that of the logarithms, unless some value is 0.
        """
        return _means_of({name: [self.values(metric, place, name) for place in places] for name in names})

    def ratio(
        self, name: str, claim: Claim, metric: MetricOf, places: Sequence[Place], *, ours: str, over: str
    ) -> FigureRow:
        """Compare one system's mean over the places, divided by the other's, with the claim."""
        stand_in = places[0][1].stand_in
        why_not = self._why_not(places, (ours, over))
        means = self.means(metric, places, (ours, over))
        if why_not or means is None:
            return claim.not_comparable(name, stand_in, why_not or "a run lacks the number")
        ratio = ratio_of(means[ours], means[over])
        sizes = " against ".join(
            f"{system_name} {number(mean_of(means[system_name]).value)}" for system_name in (ours, over)
        )
        if ratio is None:
            return claim.not_comparable(name, stand_in, f"one of them is 0: {sizes}")
        row = judged_over(name, claim, ratio, stand_in=stand_in, why=sizes)
        mean = _mean_at_point(metric, places, (ours, over))
        return self._moved(row, places, _ratio_moved(self.outcomes, claim, places, mean, (ours, over)))

    def order(
        self, name: str, metric: MetricOf, places: Sequence[Place], smallest_first: Sequence[str], unit: str
    ) -> FigureRow:
        """Compare the order of the systems' means with the claimed order."""
        claim = Claim(" < ".join(smallest_first), 0.0, 1.0, kind="paper_direction")
        stand_in = places[0][1].stand_in
        means = self.means(metric, places, smallest_first)
        if means is None:
            why = self._why_not(places, smallest_first) or "a run lacks the number"
            return claim.not_comparable(name, stand_in, why)
        row = in_order(name, smallest_first, means, unit=unit, stand_in=stand_in, kind="paper_direction")
        mean = _mean_at_point(metric, places, smallest_first)
        return self._moved(row, places, _order_moved(self.outcomes, places, mean, smallest_first))

    def numbers(
        self, metrics: Mapping[str, MetricOf], places: Mapping[tuple[str, float], Place]
    ) -> tuple[MeasuredPoint, ...]:
        """Every metric of every system at every place (panel, x) that ran."""
        return tuple(
            MeasuredPoint(panel, name, system_name, x, tuple(values))
            for name, metric in metrics.items()
            for (panel, x), place in places.items()
            for system_name in SYSTEMS
            if (values := self.values(metric, place, system_name))
        )

    def _moved(self, row: FigureRow, places: Sequence[Place], movement: str) -> FigureRow:
        """Return the row with the keys of its sweeps, and ``movement`` along them if it is missed."""
        names = {set_up.name for _, set_up in places}
        keys = [(sweep.kind, sweep.subject) for sweep in self.outcomes.sweeps if sweep.subject in names]
        if row.verdict in MISSED:
            row = replace(row, why=joined(row.why, movement))
        return pointed(row, self.key, *keys)

    def _why_not(self, places: Sequence[Place], names: Sequence[str]) -> str:
        return self.outcomes.why_not(*[self.case_of(name, set_up) for _, set_up in places for name in names])


def over_row(
    outcomes: Outcomes, name: str, claim: Claim, metric: Metric, *, ours: Case, other: Case, key: Key
) -> FigureRow:
    """Compare the ratio of two cases' metric with the claim; the row also states both sizes."""

    def sizes(_: list[float]) -> str:
        ours_mean, other_mean = (fmean(metric.of(outcomes.of(case)) or [0.0]) for case in (ours, other))
        return f"{ours_mean:.3g} against {other_mean:.3g} {metric.unit}"

    return judged_row(
        outcomes,
        name,
        claim,
        (ours, other),
        ratios_of(metric, "a run lacks the number"),
        why=sizes,
        estimate=geometric_mean_of,
        stand_in="",
        key=key,
    )


def points_of(
    outcomes: Outcomes, metrics: Mapping[str, Metric], panel: str, points: Iterable[tuple[str, float, Case]]
) -> tuple[MeasuredPoint, ...]:
    """Every metric of a panel's points (system, x, case) that ran."""
    points = list(points)
    return tuple(
        MeasuredPoint(panel, name, system_name, x, tuple(values))
        for name, metric in metrics.items()
        for system_name, x, case in points
        if (values := metric.of(outcomes.of(case)))
    )


def as_sweep(about: str, numbers: Sequence[MeasuredPoint]) -> dict[str, object]:
    """Every point, for sweeps.json."""
    points = {
        joined(point.panel, point.metric, point.system, f"{point.x:g}"): list(point.values)
        for point in numbers
    }
    return {"told": about, "points": points}


def _means_of(values: Mapping[str, Sequence[list[float] | None]]) -> dict[str, list[float]] | None:
    """Return each system's mean over its places, one per seed; None if a run lacks the number."""
    known = {name: [seeds for seeds in rows if seeds is not None] for name, rows in values.items()}
    if any(len(known[name]) < len(rows) for name, rows in values.items()):
        return None
    positive = all(value > 0 for rows in known.values() for seeds in rows for value in seeds)
    mean = geometric_mean if positive else fmean
    return {name: [mean(seeds) for seeds in zip(*rows, strict=True)] for name, rows in known.items()}


# How far a mean over models moves along the sweeps of their set-ups.


def _mean_at_point(metric: MetricOf, places: Sequence[Place], names: Sequence[str]) -> Mean:
    """As ``Judge.means``, of the first seed at a point of a sweep and of the places that have the point."""

    def mean(runs: Runs, numbers: Sequence[int]) -> dict[str, float] | None:
        values = {
            name: [metric(places[place][0]).of(runs[place, name]) for place in numbers] for name in names
        }
        means = _means_of(values)
        return None if means is None else {name: seeds[0] for name, seeds in means.items()}

    return mean


def _along_sweeps(
    outcomes: Outcomes, places: Sequence[Place], names: Sequence[str]
) -> dict[str, dict[str, tuple[Runs, list[int]]]]:
    """kind -> value -> (runs, places that have the sweep), where every such place has these systems there."""
    place_of = {set_up.name: place for place, (_, set_up) in enumerate(places)}
    by_kind: dict[str, dict[str, tuple[Runs, list[int]]]] = {}
    for sweep in outcomes.sweeps:
        place = place_of.get(sweep.subject)
        if place is None:
            continue
        for value, cases in sweep.points:
            runs, swept = by_kind.setdefault(sweep.kind, {}).setdefault(value, ({}, []))
            by_label = {case.label: outcomes.of(case)[:1] for case in cases}
            if all(by_label.get(name) for name in names):
                swept.append(place)
                runs |= {(place, name): by_label[name] for name in names}
    return by_kind


def _ratio_moved(
    outcomes: Outcomes, claim: Claim, places: Sequence[Place], mean: Mean, names: tuple[str, str]
) -> str:
    """At every point the mean of the first system over that of the second."""
    parts = []
    for kind, points in _along_sweeps(outcomes, places, names).items():
        sizes = {
            value: means[names[0]] / means[names[1]]
            for value, (runs, swept) in points.items()
            if swept and (means := mean(runs, swept)) and means[names[1]] > 0
        }
        if sizes:
            each = ", ".join(f"{number(size)} ({value})" for value, size in sizes.items())
            parts.append(f"by {kind} {each}, {held_at(claim, sizes.values())}")
    return "; ".join(parts)


def _order_moved(outcomes: Outcomes, places: Sequence[Place], mean: Mean, names: Sequence[str]) -> str:
    """The order at every point."""
    parts = []
    for kind, points in _along_sweeps(outcomes, places, names).items():
        orders = {
            value: " < ".join(sorted(names, key=means.__getitem__))
            for value, (runs, swept) in points.items()
            if swept and (means := mean(runs, swept))
        }
        if orders:
            parts.append(f"by {kind} " + ", ".join(f"{order} ({value})" for value, order in orders.items()))
    return "; ".join(parts)
