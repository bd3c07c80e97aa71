"""``points.csv``: all that figures draw. ``runs.csv``: every run behind them, with its command."""

import csv
import io
from collections.abc import Iterable, Sequence
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
    """y: mean over seeds; low, high: its 95 % interval; ratio: of y to the paper's."""
    lines = []
    for figure in figures:
        for one in figure.numbers:
            found = mean_of(one.values)
            ratio = found.value / one.paper if one.paper else None
            place = (figure.name, one.panel, one.metric, one.system, one.x)
            sizes = (found.value, found.low, found.high, one.values[0], len(one.values), one.paper, ratio)
            lines.append((*place, *sizes))
    return _text(_POINTS, lines)


def runs_csv(outcomes: Outcomes) -> str:
    """Set-up, system, seed, the numbers that sweeps.json has, the command."""
    lines = []
    for case, runs in outcomes.found.items():
        for seed, run in enumerate(runs):
            numbers = [metric.read(run) for metric in SAVED.values()]
            lines.append((case.set_up.name, case.label, seed, *numbers, command_of(run, case)))
    return _text(("set_up", "system", "seed", *SAVED, "command"), lines)


def _text(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Numbers with ten digits, nothing where there is none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(titles)
    for line in lines:
        writer.writerow([f"{one:.10g}" if isinstance(one, float) else one for one in line])
    return file.getvalue()
