"""Draws panels with matplotlib, at the width of a paper's column or page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from servetwin.config.overrides import closest, echo
from servetwin.plotting.panel import Line, Panel
from servetwin.report.picture import new_figure, save
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Inches: a column and the text of a page in two columns (ACM's and USENIX's templates).
WIDTHS: Final = {"column": 3.33, "page": 7.0}
_PANEL_HEIGHT: Final = 0.62  # of a panel's width
_POINTS: Final = 8  # of text: what a paper's captions have
_MOST_ACROSS: Final = 3
_SPREAD: Final = 0.5  # of the distance of two places: what the points of one place take
_MARKERS: Final = "osD^v<>PX*"
# Colours that readers without full colour vision tell apart (Okabe and Ito 2008), dark ones first.
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """``width``: inches. ``style``: of matplotlib, "" for our own. ``log``: which axes are logarithmic."""

    width: float
    style: str = ""
    title: str = ""
    log: frozenset[str] = frozenset()


def width_of(text: str) -> float:
    """Return inches of ``column``, ``page`` or a number. UserError for anything else."""
    if text in WIDTHS:
        return WIDTHS[text]
    try:
        inches = float(text)
    except ValueError:
        inches = math.nan
    if not 1 <= inches <= 40:
        raise UserError(f"width={echo(text)} is no width: write column, page or inches from 1 to 40")
    return inches


def check_style(name: str) -> str:
    """Return the name. UserError for a style that matplotlib does not have."""
    from matplotlib import style

    if name and name not in style.available:
        near = closest(name, style.available) or "seaborn-v0_8-paper"
        raise UserError(f"style={echo(name)} is none of matplotlib's: write style={near}")
    return name


def draw(panels: Sequence[Panel], looks: Looks, path: Path) -> None:
    """Write the figure. UserError if the file cannot be written."""
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib import style

    own = {
        "font.size": _POINTS, "axes.titlesize": _POINTS, "axes.labelsize": _POINTS, "legend.fontsize": 7,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
        "lines.linewidth": 1.3, "lines.markersize": 3.5, "axes.prop_cycle": cycler(color=_COLORS),
        # Text stays text, in fonts that submission systems take.
        "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "servetwin",
    }  # fmt: skip
    with mpl.rc_context(), style.context([own, looks.style] if looks.style else own):
        across = min(len(panels), _MOST_ACROSS if looks.width > WIDTHS["column"] else 1)
        down = math.ceil(len(panels) / across)
        height = looks.width / across * _PANEL_HEIGHT * down + 0.2
        figure = new_figure(looks.width, height)
        grid = figure.subplots(down, across, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, looks)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        if looks.title:
            figure.suptitle(looks.title)
        save(figure, path, dpi=300)


def _draw_panel(axes: Axes, panel: Panel, looks: Looks) -> None:
    from matplotlib.ticker import MaxNLocator

    for place, line in enumerate(panel.lines):
        if line.shape == "points":
            _draw_points(axes, line, place, len(panel.lines))
        else:
            _draw_line(axes, line, place)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.log_x or "x" in looks.log:
        axes.set_xscale("log")
        _name_ticks(axes.xaxis)
    if panel.log_y or "y" in looks.log:
        axes.set_yscale("log")
        _name_ticks(axes.yaxis)
    else:
        axes.set_ylim(bottom=0, top=1.02 if panel.is_share else None)
        if panel.whole_y:
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks)
        axes.set_xlim(-0.5, len(panel.ticks) - 0.5)
    if len(panel.lines) > 1:
        axes.legend(frameon=False)


def _name_ticks(axis: Axis) -> None:
    """Write 2, 5 and 10 of each decade as plain numbers, without exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _draw_line(axes: Axes, line: Line, place: int) -> None:
    marker = _MARKERS[place % len(_MARKERS)] if line.marked else None
    style = "steps-post" if line.shape == "steps" else "default"
    (drawn,) = axes.plot(line.x, line.y, marker=marker, drawstyle=style, label=line.label)
    if line.low and any(low != high for low, high in zip(line.low, line.high, strict=True)):
        axes.fill_between(line.x, line.low, line.high, color=drawn.get_color(), alpha=0.15, linewidth=0)


def _draw_points(axes: Axes, line: Line, place: int, lines: int) -> None:
    """Draw points with error bars, those of several lines beside each other at each place."""
    beside = _SPREAD * (place - (lines - 1) / 2) / lines
    ends = zip(line.y, line.low, line.high, strict=True) if line.low else ()
    bars = [(y - low, high - y) for y, low, high in ends]
    axes.errorbar(
        [x + beside for x in line.x],
        line.y,
        yerr=list(zip(*bars, strict=True)) if any(below == below for below, _ in bars) else None,
        fmt=_MARKERS[place % len(_MARKERS)],
        capsize=2,
        elinewidth=1,
        label=line.label,
    )
