"""Rows of Llumnix's figures: ours beside a point of the paper, a ratio beside theirs, an order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.common.compare import Read, Seeds, joined, judged_row, ratios_of, values_of
from experiments.common.figure import Figure, FigureRow, MeasuredPoint
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import geometric_mean_of, mean_of
from experiments.common.panels import panels_of
from experiments.common.saved import SEED
from experiments.common.sensitivity import moved_order
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, in_order, times
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.points import Points
from experiments.llumnix.set_ups import PAPER_REQUESTS
from servetwin.report.number_text import number


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One system at one place x of a panel, whose numbers ``metrics`` reads from its runs."""

    panel: str
    system: str
    x: float
    case: Case
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)


def cases_of(curves: Callable[[int], Sequence[CurvePoint]]) -> Callable[[int], tuple[Case, ...]]:
    """Return a function from the number of requests per run to the cases of all curves, each once."""
    return lambda requests: tuple(dict.fromkeys(curve.case for curve in curves(requests)))


@dataclass(frozen=True, slots=True)
class PointJudge:
    """Compares outcomes with points of the paper."""

    outcomes: Outcomes
    points: Points

    @property
    def requests(self) -> int:
        """The number of requests of each run; with fewer than in the paper, no row is compared."""
        return self.outcomes.requests

    def numbers(self, figure: str, curves: Sequence[CurvePoint]) -> tuple[MeasuredPoint, ...]:
        """Every metric of every curve that ran, beside its point where there is one."""
        measured = []
        for curve in curves:
            for name, metric in curve.metrics.items():
                values = metric.of(self.outcomes.of(curve.case))
                if values:
                    paper = self._point(figure, name, curve)
                    measured.append(
                        MeasuredPoint(curve.panel, name, curve.system, curve.x, tuple(values), paper=paper)
                    )
        return tuple(measured)

    def without_rows(
        self, name: str, title: str, curves: Sequence[CurvePoint], x_label: str, inputs: tuple[str, ...]
    ) -> Figure:
        """Return a figure of curves for which the paper has no points."""
        numbers = self.numbers(name, curves)
        return Figure(name, title, (), panels=panels_of(numbers, x_label), inputs=inputs, numbers=numbers)

    def value(
        self, figure: str, name: str, curve: CurvePoint, bounds: tuple[float, float]
    ) -> list[FigureRow]:
        """Ours between these multiples of the point; no row where there is no point."""
        paper, metric = self._point(figure, name, curve), curve.metrics[name]
        if paper is None:
            return []
        low, high = (paper * bound for bound in bounds)
        claim = Claim(
            f"{number(paper)} {metric.unit}".rstrip(), low, high, slack=1.0, kind="paper_number", paper=paper
        )
        title = f"{curve.case.set_up.name}: {metric.label}, {curve.system}"
        read = self._enough(metric, values_of(metric))
        return [
            judged_row(self.outcomes, title, claim, (curve.case,), read, why=first_seed, unit=metric.unit)
        ]

    def ratio(
        self, figure: str, name: str, curve: CurvePoint, other: CurvePoint, slack: float
    ) -> list[FigureRow]:
        """One system's over the other's, its ratio and its change within this factor of their points'."""
        metric = curve.metrics[name]
        point, other_point = (self._point(figure, name, place) for place in (curve, other))
        if point is None or other_point is None:
            return []
        paper = point / other_point
        claim = times(paper, f"{number(paper)} times", slack)

        def why(seeds: list[float]) -> str:
            sizes = [
                mean_of(metric.of(self.outcomes.of(place.case)) or [0.0]).value for place in (curve, other)
            ]
            return joined(f"{number(sizes[0])} against {number(sizes[1])} s", first_seed(seeds))

        return [
            judged_row(
                self.outcomes,
                f"{curve.case.set_up.name}: {metric.label} of {curve.system} over {other.system}",
                claim,
                (curve.case, other.case),
                self._enough(metric, ratios_of(metric, "one of them is 0")),
                why=why,
                estimate=geometric_mean_of,
            )
        ]

    def order(self, key: str, curves: Sequence[CurvePoint]) -> FigureRow:
        """The systems in this order, the smallest first, by the words of the paper."""
        set_up, labels = curves[0].case.set_up, [curve.system for curve in curves]
        metric = curves[0].metrics[key]
        name = f"{set_up.name}: order of {metric.label}"
        unmeasured = Claim(" < ".join(labels), 0.0, 1.0, kind="paper_direction")
        by_system: dict[str, list[float]] = {}
        for curve in curves:
            runs = self.outcomes.of(curve.case)
            values = self.outcomes.why_not(curve.case) or self._enough(metric, values_of(metric))([runs])
            if isinstance(values, str):
                return unmeasured.not_comparable(name, set_up.stand_in, values)
            by_system[curve.system] = values
        row = in_order(
            name, labels, by_system, unit=metric.unit, stand_in=set_up.stand_in, kind="paper_direction"
        )
        movement, keys = moved_order(self.outcomes, metric, [curve.case for curve in curves])
        saved = ((SEED, set_up.name), *keys)
        return replace(
            row, why=joined(row.why, movement) if row.verdict != "in band" else row.why, saved=saved
        )

    def _point(self, figure: str, name: str, curve: CurvePoint) -> float | None:
        return self.points.at(figure, curve.panel, name, curve.system, curve.x)

    def _enough(self, metric: Metric, read: Read) -> Read:
        """Return ``read`` for runs with as many requests as in the paper.

        For shorter runs the result returns the measured values as a sentence, so that no row is compared.
        """

        def read_enough(runs: Sequence[Sequence[RunOutcome]]) -> Seeds:
            for part in runs:
                values = values_of(metric)([part])
                if isinstance(values, str):
                    return values
                if self.requests < PAPER_REQUESTS:
                    size = f"{number(mean_of(values).value)} {metric.unit}".rstrip()
                    few = f"{self.requests:,} requests: the paper's runs have {PAPER_REQUESTS:,}"
                    return f"ours {size} with {few}"
            return read(runs)

        return read_enough


def values_if_enough(metric: Metric, few: str, lacks: str = "") -> Read:
    """Reads the metric of one system. few: why the runs are too short to claim anything; else empty."""

    def read(runs: Sequence[Sequence[RunOutcome]]) -> Seeds:
        values = metric.of(runs[0])
        size = f"; ours {number(mean_of(values).value)}" if values else ""
        return f"{few}{size}" if few else values or lacks

    return read


def first_seed(seeds: Sequence[float]) -> str:
    """Seed 0 is the sample that the paper ran."""
    return f"seed 0 {number(seeds[0])}"
