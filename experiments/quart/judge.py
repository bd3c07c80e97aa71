"""Rows of QUART's figures: a mean over models and workloads, system beside system, seed by seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

from experiments.common.compare import joined, pointed
from experiments.common.figure import MISSED, Key, Measured, Row
from experiments.common.outcomes import Metric, Outcome, Outcomes
from experiments.common.paired import mean_of, ratio_of
from experiments.common.set_up import SetUp
from experiments.common.verdict import Claim, in_order, judged_over
from experiments.quart.moved_means import Mean, keys_of, order_moved, ratio_moved
from experiments.quart.set_ups import SYSTEMS, Model, system
from servetwin.report.number_text import number

MetricOf = Callable[[Model], Metric]
Place = tuple[Model, SetUp]


@dataclass(frozen=True, slots=True)
class Judge:
    """key: of the saved sweep that has every number behind the figure's rows."""

    outcomes: Outcomes
    key: Key

    def values(self, metric: MetricOf, place: Place, name: str) -> list[float] | None:
        """One per seed."""
        model, set_up = place
        return metric(model).of(self.outcomes.of(system(name, set_up)))

    def means(
        self, metric: MetricOf, places: Sequence[Place], names: Sequence[str]
    ) -> dict[str, list[float]] | None:
        """Of each system over the places, one per seed; None where a run has no number.

        Models and CVs count alike, however slow: the mean is that of the logarithms, unless some value is 0.
        """
        found = {name: [self.values(metric, place, name) for place in places] for name in names}
        return _means_of(found)

    def _swept(self, metric: MetricOf, places: Sequence[Place], names: Sequence[str]) -> Mean:
        """The same of one point of a sweep, of the places that have it."""

        def mean(
            runs: Mapping[tuple[int, str], tuple[Outcome, ...]], at: Sequence[int]
        ) -> dict[str, float] | None:
            found = {name: [metric(places[one][0]).of(runs[one, name]) for one in at] for name in names}
            means = _means_of(found)
            return None if means is None else {name: values[0] for name, values in means.items()}

        return mean

    def _told(self, row: Row, told: str, places: Sequence[Place]) -> Row:
        """A row that is missed says how far it moves along the sweeps, and where these are."""
        set_ups = [set_up for _, set_up in places]
        if row.verdict in MISSED:
            row = replace(row, why=joined(row.why, told))
        return pointed(row, self.key, *keys_of(self.outcomes, set_ups))

    def ratio(
        self, name: str, claim: Claim, metric: MetricOf, places: Sequence[Place], one: str, other: str
    ) -> Row:
        """The mean over the places of one system over the other's."""
        stand_in = places[0][1].stand_in
        why_not = self._why_not(places, (one, other))
        means = self.means(metric, places, (one, other))
        if why_not or means is None:
            return claim.not_comparable(name, stand_in, why_not or "a run lacks the number")
        ours, theirs = means[one], means[other]
        found = ratio_of(ours, theirs)
        sizes = f"{one} {number(mean_of(ours).value)} against {other} {number(mean_of(theirs).value)}"
        if found is None:
            return claim.not_comparable(name, stand_in, f"one of them is 0: {sizes}")
        row = judged_over(name, claim, found, stand_in, sizes)
        mean = self._swept(metric, places, (one, other))
        set_ups = [set_up for _, set_up in places]
        return self._told(row, ratio_moved(self.outcomes, claim, set_ups, mean, one, other), places)

    def order(
        self, name: str, metric: MetricOf, places: Sequence[Place], smallest_first: Sequence[str], unit: str
    ) -> Row:
        """The systems in this order."""
        claim = Claim(" < ".join(smallest_first), 0.0, 1.0, kind="paper_direction")
        stand_in = places[0][1].stand_in
        found = self.means(metric, places, smallest_first)
        if found is None:
            why = self._why_not(places, smallest_first) or "a run lacks the number"
            return claim.not_comparable(name, stand_in, why)
        row = in_order(name, smallest_first, found, unit, stand_in, "paper_direction")
        mean = self._swept(metric, places, smallest_first)
        set_ups = [set_up for _, set_up in places]
        return self._told(row, order_moved(self.outcomes, set_ups, mean, smallest_first), places)

    def numbers(
        self, metrics: Mapping[str, MetricOf], places: Mapping[tuple[str, float], Place]
    ) -> tuple[Measured, ...]:
        """Every metric of every system at every place (panel, x) that ran."""
        return tuple(
            Measured(panel, name, one, x, tuple(values))
            for name, metric in metrics.items()
            for (panel, x), place in places.items()
            for one in SYSTEMS
            if (values := self.values(metric, place, one))
        )

    def _why_not(self, places: Sequence[Place], names: Sequence[str]) -> str:
        return self.outcomes.why_not(*[system(one, set_up) for _, set_up in places for one in names])


def _means_of(found: Mapping[str, Sequence[list[float] | None]]) -> dict[str, list[float]] | None:
    """Of each system over its places, seed by seed; None where a run has no number."""
    known = {name: [one for one in rows if one is not None] for name, rows in found.items()}
    if any(len(known[name]) < len(rows) for name, rows in found.items()):
        return None
    positive = all(value > 0 for rows in known.values() for seeds in rows for value in seeds)
    mean = geometric_mean if positive else fmean
    return {name: [mean(seeds) for seeds in zip(*rows, strict=True)] for name, rows in known.items()}


def as_sweep(told: str, numbers: Sequence[Measured]) -> dict[str, object]:
    """Every point, for sweeps.json."""
    return {
        "told": told,
        "points": {
            joined(one.panel, one.metric, one.system, f"{one.x:g}"): list(one.values) for one in numbers
        },
    }
