"""Pictures and tables over time of ``realexec fidelity``: the real runs of a case and their twin."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.over_time import GAUGES, OverTime, together
from servetwin.compare.own_result import read_result
from servetwin.config.whole_file import whole_file
from servetwin.report.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI: Final = 110
_WIDTH_IN, _ROW_IN = 9.0, 1.5
_REAL, _TWIN = "#888888", "#1f5fbf"


def write_over_time(folder: Path, name: str, twin: Path, reals: Sequence[Path], what: str) -> tuple[str, str]:
    """Write NAME.svg and NAME-over-time.csv into the folder; return their names. ``what``: the real runs."""
    runs = together([read_result(one) for one in (twin, *reals)])
    picture, table = f"{name}.svg", f"{name}-over-time.csv"
    _draw(folder / picture, name, runs, what)
    with whole_file("out", folder / table) as half, half.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["run", "time_s", *GAUGES])
        for one, run in zip((twin, *reals), runs, strict=True):
            columns = [run.gauges.get(gauge, np.full(len(run.time_s), np.nan)) for gauge in GAUGES]
            rows.writerows(
                [one.name, f"{at:.2f}", *(f"{value:.4g}" for value in values)]
                for at, *values in zip(run.time_s, *columns, strict=True)
            )
    return picture, table


def _draw(path: Path, name: str, runs: Sequence[OverTime], what: str) -> None:
    """A row for each gauge, all runs in it: the real ones grey, the simulated one above them."""
    gauges = [gauge for gauge in GAUGES if any(gauge in run.gauges for run in runs)]
    figure = new_figure(_WIDTH_IN, _ROW_IN * len(gauges))
    rows = figure.subplots(len(gauges), 1, sharex=True, squeeze=False)[:, 0]
    for row, gauge in zip(rows, gauges, strict=True):
        _fill(row, gauge, runs, what)
    rows[0].legend(loc="upper right", fontsize=8)
    rows[-1].set_xlabel("seconds since the start of the run")
    figure.suptitle(f"{name}: {what}, and simulated", fontsize=10)
    save(figure, path, _DPI)


def _fill(row: "Axes", gauge: str, runs: Sequence[OverTime], what: str) -> None:
    twin, *reals = runs
    for number, run in enumerate(reals):
        if gauge in run.gauges:
            label = f"{what}, {len(reals)} runs" if not number else None
            row.step(run.time_s, run.gauges[gauge], where="post", color=_REAL, lw=0.9, alpha=0.7, label=label)
    if gauge in twin.gauges:
        row.step(twin.time_s, twin.gauges[gauge], where="post", color=_TWIN, lw=1.5, label="simulated")
    row.set_title(GAUGES[gauge], fontsize=8, loc="left")
    row.set_ylim(bottom=0)
    row.tick_params(labelsize=8)
    row.grid(alpha=0.3)
