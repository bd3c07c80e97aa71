"""Panels of a sweep (means.csv) and of a reproduction (points.csv): a metric over what was varied."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from servetwin.config.overrides import closest, echo
from servetwin.plotting.panel import Line, Panel
from servetwin.report.metric_text import name_of
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MEANS: Final = "means.csv"
POINTS: Final = "points.csv"
_NUMBERS: Final = ("metric", "seeds", "mean", "low", "high")
_SHARED_BY_ALL: Final = "all runs"


def of_sweep(folder: Path, metrics: Sequence[str], x: str, by: Sequence[str]) -> list[Panel]:
    """Return a panel per metric: its mean and 95 % interval over ``x``, a line per setting of the other axes.

    ``x`` "": the first axis of numbers, else the first axis. ``by`` (): every other axis. UserError for names
    that the sweep does not have.
    """
    import pandas as pd

    table = pd.read_csv(folder / MEANS)
    axes = [name for name in table.columns if name not in _NUMBERS]
    if not axes:
        raise UserError(f"{folder} varied nothing but seeds: there is nothing to put on an axis")
    x = _one_of(x, axes, "x") if x else _first_of_numbers(table, axes)
    by = [_one_of(name, axes, "by") for name in by] or [name for name in axes if name != x]
    known = sorted(set(table["metric"]))
    return [
        _panel(table[table["metric"] == _one_of(metric, known, "metric")], metric, x, by)
        for metric in metrics or ("ttft_ms.p99", "slo.attainment")
    ]


def _one_of(name: str, known: Sequence[str], key: str) -> str:
    if name in known:
        return name
    near = closest(name, known)
    raise UserError(f"{key}={echo(name)} is not there: write {key}={near or ' | '.join(known[:12])}")


def _first_of_numbers(table: pd.DataFrame, axes: Sequence[str]) -> str:
    return next((name for name in axes if table[name].dtype.kind in "if"), axes[0])


def _panel(table: pd.DataFrame, metric: str, x: str, by: Sequence[str]) -> Panel:
    numeric = table[x].dtype.kind in "if"
    ticks = () if numeric else tuple(dict.fromkeys(map(str, table[x])))
    lines = []
    for key, rows in _groups(table, by):
        rows = rows.sort_values(x) if numeric else rows
        places = rows[x].astype(float) if numeric else rows[x].astype(str).map(ticks.index)
        names = key if isinstance(key, tuple) else (key,)
        lines.append(
            Line(
                label=", ".join(map(str, names)) or _SHARED_BY_ALL,
                x=places.tolist(),
                y=rows["mean"].tolist(),
                low=rows["low"].tolist(),
                high=rows["high"].tolist(),
                marked=True,
            )
        )
    title = name_of(metric)
    unit = " (ms)" if metric.partition(".")[0].endswith("_ms") else ""
    is_share = metric.endswith(("attainment", "share"))
    return Panel(
        title=title, x_label=x, y_label=f"{title}{unit}", lines=tuple(lines), ticks=ticks, is_share=is_share
    )


def _groups(table: pd.DataFrame, by: Sequence[str]) -> Iterable[tuple[Hashable, pd.DataFrame]]:
    """Return the rows of each setting of the axes in ``by``, in order; all rows without any."""
    return table.groupby(list(by), sort=False) if by else [((), table)]


def of_reproduction(folder: Path, figures: Sequence[str]) -> list[Panel]:
    """Return a panel per figure, panel and metric of points.csv: ours by system, and the paper's points.

    ``figures``: those to draw, () for all. UserError for a figure that it does not have.
    """
    import pandas as pd

    table = pd.read_csv(folder / POINTS, dtype={"figure": str, "panel": str, "system": str})
    if table.empty:
        raise UserError(f"{folder / POINTS} has no points: the figures there are PNG files alone")
    known = list(dict.fromkeys(table["figure"]))
    chosen = [_one_of(name, known, "figure") for name in figures] or known
    panels = []
    for (figure, panel, metric), rows in table.fillna({"panel": ""}).groupby(
        ["figure", "panel", "metric"], sort=False
    ):
        if figure in chosen:
            title = " ".join(filter(None, (str(figure), str(panel))))
            panels.append(Panel(title=title, x_label="x", y_label=str(metric), lines=tuple(_systems(rows))))
    return panels


def _systems(rows: pd.DataFrame) -> Iterable[Line]:
    for system, points in rows.groupby("system", sort=False):
        points = points.sort_values("x")
        x = points["x"].tolist()
        known = bool(points["low"].notna().all())  # figures without seeds have no intervals
        low, high = (points[end].tolist() if known else () for end in ("low", "high"))
        yield Line(label=str(system), x=x, y=points["y"].tolist(), low=low, high=high, marked=known)
        if (told := points.dropna(subset=["paper"])).size:
            label = f"{system}, paper"
            yield Line(label=label, x=told["x"].tolist(), y=told["paper"].tolist(), marked=True)
