"""The picture of a reproduced figure: its panels, and ours over the paper's for every row that has both."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from experiments.common.figure import Figure, FigureRow, Panel
from experiments.common.verdict import BAND
from servetwin.report.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMN_IN: Final = 5.5
_PANEL_IN: Final = 3.4
_ROW_IN: Final = 0.26
_COLORS: Final = {
    "in band": "tab:green", "out": "tab:red", "not shown": "tab:orange", "not comparable": "tab:gray",
    "direction held": "tab:green", "direction not held": "tab:red", "direction not shown": "tab:orange",
}  # fmt: skip
_TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_LEAST_RATIO: Final = 0.01  # where a ratio of 0 is drawn


def draw(figure: Figure, path: Path) -> None:
    """Write the picture to ``path``. UserError when it cannot be written."""
    rows = [row for row in figure.rows if row.ratio is not None]
    columns = 1 if len(figure.panels) < 2 else figure.columns
    above = -(-len(figure.panels) // columns)
    heights = [_PANEL_IN * above] if above else []
    heights += [1.2 + _ROW_IN * len(rows)] if rows or not above else []
    width = _COLUMN_IN * max(columns, 2)
    drawn = new_figure(width, sum(heights) + 0.4)
    drawn.suptitle(figure.title)
    parts = drawn.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if above:
        share_y = "row" if figure.share_y else False
        places = parts[0].subplots(above, columns, squeeze=False, sharey=share_y).flatten()
        for place, panel in itertools.zip_longest(places, figure.panels):
            _panel(place, panel) if panel is not None else place.set_axis_off()
    if rows or not above:
        _ratios(parts[-1].subplots(), rows)
    save(drawn, path, dpi=110)


def _panel(axes: "Axes", panel: Panel) -> None:
    for line in panel.lines:
        axes.plot(line.x, line.y, line.style, label=line.label)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if panel.log_y:
        _log_y(axes)
    if panel.log_x:
        _log_x(axes, sorted({x for line in panel.lines for x in line.x}))
    below = -0.18
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=20, ha="right", fontsize="small")
        below = -0.32
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=3, frameon=False, fontsize="small")


def _log_y(axes: "Axes") -> None:
    """Plain numbers at 1, 2 and 5 of every power of ten; nothing is drawn of 0."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_yticks([], minor=True)


def _log_x(axes: "Axes", places: Sequence[float]) -> None:
    """Ticks at the points themselves."""
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:,g}" for place in places], minor=False)
    axes.set_xticks([], minor=True)


def _ratios(axes: "Axes", rows: Sequence[FigureRow]) -> None:
    """One dot per row; the band is shaded."""
    axes.axvspan(1 / BAND, BAND, color="tab:green", alpha=0.12)
    axes.axvline(1.0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        axes.plot(max(row.ratio or 0.0, _LEAST_RATIO), place, "o", color=_COLORS[row.verdict])
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize="small")
    axes.invert_yaxis()
    nothing = "" if rows else ": no row has a number to compare"
    axes.set(
        xscale="log",
        xlabel=f"ours / paper; green in band, red out, orange not shown (shaded: a factor {BAND:g}){nothing}",
    )
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in _TICKS if low <= tick <= high], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")
