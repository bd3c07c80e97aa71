"""Rows of Llumnix's figures: ours beside a point of the paper, a ratio beside theirs, an order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.common.compare import joined, kept
from experiments.common.figure import Measured, Row
from experiments.common.moved import moved_alone, moved_order, moved_ratio
from experiments.common.outcomes import Metric, Outcomes
from experiments.common.paired import mean_of, ratio_of
from experiments.common.saved import SEED
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, in_order, judged_over
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.points import Points
from experiments.llumnix.set_ups import PAPER_REQUESTS
from servetwin.report.number_text import number


@dataclass(frozen=True, slots=True)
class Curve:
    """One system at one place x of a panel, whose numbers ``metrics`` reads from its runs."""

    panel: str
    system: str
    x: float
    case: Case
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)


@dataclass(frozen=True, slots=True)
class Judge:
    """requests: of a run; with fewer than the paper's rows claim nothing."""

    outcomes: Outcomes
    points: Points
    requests: int

    def numbers(self, figure: str, curves: Sequence[Curve]) -> tuple[Measured, ...]:
        """Every metric of every curve that ran, beside its point where there is one."""
        found = []
        for one in curves:
            for name, metric in one.metrics.items():
                values = metric.of(self.outcomes.of(one.case))
                if values:
                    paper = self.points.at(figure, one.panel, name, one.system, one.x)
                    found.append(Measured(one.panel, name, one.system, one.x, tuple(values), paper))
        return tuple(found)

    def value(self, figure: str, name: str, one: Curve, bounds: tuple[float, float]) -> list[Row]:
        """Ours between these multiples of the point; no row where there is no point."""
        paper, metric = self.points.at(figure, one.panel, name, one.system, one.x), one.metrics[name]
        if paper is None:
            return []
        told = f"{one.case.set_up.name}: {metric.label}, {one.system}"
        low, high = (paper * bound for bound in bounds)
        claim = Claim(f"{number(paper)} {metric.unit}".rstrip(), low, high, slack=1.0, kind="paper_number")
        values = self._values(metric, one.case)
        if isinstance(values, str):
            return [claim.not_comparable(told, one.case.set_up.stand_in, values)]
        found = mean_of(values)
        row = judged_over(told, claim, found, one.case.set_up.stand_in, _first(values), unit=metric.unit)
        moved = moved_alone(self.outcomes, claim, metric, one.case)
        return [kept(replace(row, ratio=found.value / paper), one.case, values, *moved)]

    def ratio(self, figure: str, name: str, one: Curve, other: Curve, slack: float) -> list[Row]:
        """One system's over the other's, within this factor of the ratio of their points."""
        metric, both = one.metrics[name], (one, other)
        points = [self.points.at(figure, curve.panel, name, curve.system, curve.x) for curve in both]
        if points[0] is None or points[1] is None:
            return []
        paper = points[0] / points[1]
        told = f"{one.case.set_up.name}: {metric.label} of {one.system} over {other.system}"
        claim = Claim(f"{number(paper)} times", paper, paper, slack=slack, kind="paper_number")
        pairs = [self._values(metric, curve.case) for curve in both]
        stand_in = one.case.set_up.stand_in
        for values in pairs:
            if isinstance(values, str):
                return [claim.not_comparable(told, stand_in, values)]
        ours, theirs = ([float(value) for value in values] for values in pairs)
        found = ratio_of(ours, theirs)
        if found is None:
            return [claim.not_comparable(told, stand_in, "one of them is 0")]
        seeds = [first / second for first, second in zip(ours, theirs, strict=True)]
        sizes = f"{number(mean_of(ours).value)} against {number(mean_of(theirs).value)} s"
        row = judged_over(told, claim, found, stand_in, joined(sizes, _first(seeds)))
        moved = moved_ratio(self.outcomes, claim, metric, one.case, other.case)
        return [kept(row, one.case, seeds, *moved)]

    def order(self, key: str, curves: Sequence[Curve]) -> Row:
        """The systems in this order, the smallest first, by the words of the paper."""
        set_up, labels = curves[0].case.set_up, [one.system for one in curves]
        metric = curves[0].metrics[key]
        name = f"{set_up.name}: order of {metric.label}"
        unmeasured = Claim(" < ".join(labels), 0.0, 1.0, kind="paper_direction")
        found: dict[str, list[float]] = {}
        for one in curves:
            values = self._values(metric, one.case)
            if isinstance(values, str):
                return unmeasured.not_comparable(name, set_up.stand_in, values)
            found[one.system] = values
        row = in_order(name, labels, found, metric.unit, set_up.stand_in, "paper_direction")
        told, keys = moved_order(self.outcomes, metric, [one.case for one in curves])
        saved = ((SEED, set_up.name), *keys)
        return replace(row, why=joined(row.why, told) if row.verdict != "in band" else row.why, saved=saved)

    def _values(self, metric: Metric, case: Case) -> list[float] | str:
        """One per seed, or why nothing can be claimed."""
        if why_not := self.outcomes.why_not(case):
            return why_not
        values = metric.of(self.outcomes.of(case))
        if not values:
            return f"summary.json of a run has no {metric.where}"
        if self.requests < PAPER_REQUESTS:
            told = f"{number(mean_of(values).value)} {metric.unit}".rstrip()
            return f"ours {told} with {self.requests:,} requests: the paper's runs have {PAPER_REQUESTS:,}"
        return values


def _first(values: Sequence[float]) -> str:
    """Seed 0 is the sample that the paper ran."""
    return f"seed 0 {number(values[0])}"
