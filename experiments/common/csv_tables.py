"""``points.csv``: all that figures draw. ``runs.csv``: every run behind them, with its command."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import SAVED, Outcomes
from experiments.common.paired import mean_of
from experiments.common.runs import command_of

POINTS_FILE: Final = "points.csv"
RUNS_FILE: Final = "runs.csv"
_POINTS: Final = (
    "figure",
    "panel",
    "metric",
    "system",
    "x",
    "y",
    "low",
    "high",
    "seed_0",
    "seeds",
    "paper",
    "ratio",
)


def points_csv(figures: Sequence[Figure]) -> str:
    """Return a line per point. y: mean over seeds; low, high: 95 % interval of y; ratio: y / paper's y.

    Of a figure without numbers of its own: what its panels draw.
    """
    lines: list[tuple[object, ...]] = []
    for figure in figures:
        lines += [] if figure.numbers else _drawn(figure)
        for point in figure.numbers:
            mean = mean_of(point.values)
            ratio = mean.value / point.paper if point.paper else None
            place = (figure.name, point.panel, point.metric, point.system, point.x)
            sizes = (mean.value, mean.low, mean.high, point.values[0], len(point.values), point.paper, ratio)
            lines.append((*place, *sizes))
    return _text(_POINTS, lines)


def _drawn(figure: Figure) -> Iterator[tuple[object, ...]]:
    """Yield a line per point of the panels; the metric is what the panel's axis says."""
    for panel in figure.panels:
        for line in panel.lines:
            for x, y in zip(line.x, line.y, strict=True):
                yield (figure.name, panel.title, panel.y_label, line.label, x, y, "", "", "", "", "", "")


def runs_csv(outcomes: Outcomes) -> str:
    """Set-up, system, seed, the numbers that sweeps.json has, the command."""
    lines = []
    for case, runs in outcomes.runs.items():
        for seed, run in enumerate(runs):
            numbers = [metric.read(run) for metric in SAVED.values()]
            lines.append((case.set_up.name, case.label, seed, *numbers, command_of(run, case)))
    return _text(("set_up", "system", "seed", *SAVED, "command"), lines)


def _text(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return the CSV text; numbers have ten digits, and the cell of a missing number is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(titles)
    for line in lines:
        writer.writerow([f"{value:.10g}" if isinstance(value, float) else value for value in line])
    return file.getvalue()
