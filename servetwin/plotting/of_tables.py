"""Panels of a sweep (means.csv) and of a reproduction (points.csv): a metric over what was varied."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from servetwin.compare.side_by_side import short_names
from servetwin.compare.sweep_table import sweep_table
from servetwin.config.overrides import closest, echo
from servetwin.plotting.panel import Line, Panel
from servetwin.report.metric_text import name_of
from servetwin.report.number_text import counted
from servetwin.sweeps.headline import is_given
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MEANS: Final = "means.csv"
POINTS: Final = "points.csv"
_NUMBERS: Final = ("metric", "seeds", "mean", "low", "high")
_SHARED_BY_ALL: Final = "all runs"
_MOST_WORDS: Final = 3  # in the name of a line; more do not fit a legend
# What a load is, as a figure's readers know it; other keys stand for themselves.
_LOADS: Final = {
    "trace.rate_per_s": "requests per second",
    "models.rate_per_s": "requests per second",
    "trace.base_rate_per_s": "base rate (requests per second)",
    "trace.rate_scale": "factor on the arrival rate",
    "trace.utilization": "arrival rate (share of the capacity)",
    "trace.clients": "clients",
}


@dataclass(frozen=True, slots=True)
class _Sweep:
    """``axes``: what it varied beside seeds. ``fixed``: key -> text of its words with one value."""

    folder: Path
    table: pd.DataFrame
    axes: tuple[str, ...]
    fixed: dict[str, str]


def of_sweeps(
    folders: Sequence[Path], metrics: Sequence[str], x: str, by: Sequence[str], labels: Sequence[str] = ()
) -> list[Panel]:
    """Return a panel per metric: its mean and 95 % interval over ``x``, a line per setting of the other axes.

    Several sweeps are drawn into the same panels, over an axis of all of them; their lines also have the
    values of words in which the sweeps differ. ``x`` "": the first axis of numbers, else the first axis.
    ``by`` (): every other axis. ``labels``: of the lines, in order. UserError for names that the sweeps do
    not have, and for another number of labels.
    """
    sweeps = [_read(folder, several=len(folders) > 1) for folder in folders]
    shared = [axis for axis in sweeps[0].axes if all(axis in other.axes for other in sweeps)]
    if not shared:
        raise UserError(
            f"{' and '.join(map(str, folders))} vary no key in common: run them over the same loads, such as "
            "trace.rate_per_s=10,20,30"
        )
    x = _one_of(x, shared, "x") if x else _first_of_numbers(sweeps, shared)
    known_axes = list(dict.fromkeys(axis for sweep in sweeps for axis in sweep.axes))
    by = [_one_of(name, known_axes, "by") for name in by] or [name for name in known_axes if name != x]
    panels = [_panel(sweeps, metric, x, by) for metric in metrics or ("ttft_ms.p99", "slo.attainment")]
    return [_relabelled(panel, labels) for panel in panels] if labels else panels


def _read(folder: Path, several: bool) -> _Sweep:
    import pandas as pd

    # A value such as null is text here: only ends of intervals are ever missing.
    table = pd.read_csv(folder / MEANS, keep_default_na=False, na_values={"low": [""], "high": [""]})
    axes = tuple(name for name in table.columns if name not in _NUMBERS)
    if not axes:
        raise UserError(f"{folder} varied nothing but seeds: there is nothing to put on an axis")
    return _Sweep(folder, table, axes, sweep_table(folder).fixed if several else {})


def _relabelled(panel: Panel, labels: Sequence[str]) -> Panel:
    if len(labels) != len(panel.lines):
        raise UserError(
            f"labels= has {counted(len(labels), 'name')} for {counted(len(panel.lines), 'line')}: write one "
            f"for each, in this order: {'; '.join(line.label for line in panel.lines)}"
        )
    lines = (replace(line, label=label) for line, label in zip(panel.lines, labels, strict=True))
    return replace(panel, lines=tuple(lines))


def _one_of(name: str, known: Sequence[str], key: str) -> str:
    if name in known:
        return name
    near = closest(name, known)
    raise UserError(f"{key}={echo(name)} is not there: write {key}={near or ' | '.join(known[:12])}")


def _is_numeric(sweeps: Sequence[_Sweep], axis: str) -> bool:
    return all(sweep.table[axis].dtype.kind in "if" for sweep in sweeps)


def _first_of_numbers(sweeps: Sequence[_Sweep], axes: Sequence[str]) -> str:
    """Return the first axis of numbers; of several sweeps a load is preferred, under which they compare."""
    numbers = [axis for axis in axes if _is_numeric(sweeps, axis)]
    loads = [axis for axis in numbers if is_given(axis)] if len(sweeps) > 1 else []
    return next(iter((*loads, *numbers, *axes)))


def _panel(sweeps: Sequence[_Sweep], metric: str, x: str, by: Sequence[str]) -> Panel:
    ticks: tuple[str, ...] = ()
    if not _is_numeric(sweeps, x):
        ticks = tuple(dict.fromkeys(text for sweep in sweeps for text in map(str, sweep.table[x])))
    of_sweep = [_lines(sweep, metric, x, by, ticks) for sweep in sweeps]
    lines = of_sweep[0] if len(sweeps) == 1 else _named(sweeps, of_sweep, x)
    title = name_of(metric)
    unit = " (ms)" if metric.partition(".")[0].endswith("_ms") else ""
    return Panel(
        title=title,
        x_label=_LOADS.get(x, x),
        y_label=f"{title}{unit}",
        lines=tuple(lines),
        ticks=ticks,
        is_share=metric.endswith(("attainment", "share")),
        whole_y=metric.startswith("instances."),
    )


def _lines(sweep: _Sweep, metric: str, x: str, by: Sequence[str], ticks: Sequence[str]) -> list[Line]:
    known = sorted(set(sweep.table["metric"]))
    table = sweep.table[sweep.table["metric"] == _one_of(metric, known, "metric")]
    lines = []
    for key, rows in _groups(table, [name for name in by if name in sweep.axes]):
        rows = rows if ticks else rows.sort_values(x)
        places = rows[x].astype(str).map(ticks.index) if ticks else rows[x].astype(float)
        names = key if isinstance(key, tuple) else (key,)
        lines.append(
            Line(
                label=", ".join(map(str, names)) or _SHARED_BY_ALL,
                x=places.tolist(),
                y=rows["mean"].tolist(),
                low=rows["low"].tolist(),
                high=rows["high"].tolist(),
                shape="points" if ticks else "line",
                marked=True,
            )
        )
    return lines


def _named(sweeps: Sequence[_Sweep], of_sweep: Sequence[Sequence[Line]], x: str) -> list[Line]:
    """Return the lines of all sweeps, named by words that differ; by folders where these tell too little."""
    apart = [_apart(sweep, sweeps, x) for sweep in sweeps]
    by_words = [_beside(words, line) for words, lines in zip(apart, of_sweep, strict=True) for line in lines]
    labels = [line.label for line in by_words]
    if (
        len(set(labels)) == len(labels)
        and _SHARED_BY_ALL not in labels
        and max(map(len, apart)) <= _MOST_WORDS
    ):
        return by_words
    folders = short_names([sweep.folder for sweep in sweeps])
    return [_beside([name], line) for name, lines in zip(folders, of_sweep, strict=True) for line in lines]


def _apart(sweep: _Sweep, sweeps: Sequence[_Sweep], x: str) -> list[str]:
    """Return the values of the sweep's own words that not every other sweep was run with."""
    return [
        f"{key.rpartition('.')[2]}={text}" if "." in key else text
        for key, text in sweep.fixed.items()
        if key != x and any(other.fixed.get(key) != text for other in sweeps)
    ]


def _beside(words: Sequence[str], line: Line) -> Line:
    own = [] if words and line.label == _SHARED_BY_ALL else [line.label]
    return replace(line, label=", ".join([*words, *own]))


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
