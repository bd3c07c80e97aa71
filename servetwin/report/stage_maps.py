"""Load of stages over time as maps for the page: a row per stage; a darker cell is a higher value."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np

from servetwin.report import plots
from servetwin.report.figures import figure
from servetwin.report.number_text import number
from servetwin.report.page_parts import charts

SHOWN: Final = {
    "replicas": ("Replicas that serve", 1),
    "queue": ("Requests that wait", 2),
    "busy": ("Replicas with a pass under way", 1),
    "arrival_cv": ("CV of the arrivals", 3),
}
_LEFT: Final = 58
_RIGHT: Final = 14
_ROW: Final = 18
_FOOT: Final = 30
_MOST_STAGES: Final = 32
_FAINTEST: Final = 0.06


def stage_maps(load: Mapping[str, Any] | None) -> str:
    """Return a card for each number of ``SHOWN``; empty without stages. ``load``: stage_series.parquet."""
    if load is None or not len(load["time_s"]):
        return ""
    names = [f"{load['model'].words[code]} " for code in load["model"].codes]
    if len(load["model"].words) == 1:
        names = [""] * len(names)
    labels = list(dict.fromkeys(f"{name}{stage}" for name, stage in zip(names, load["stage"], strict=True)))
    times = np.unique(load["time_s"])
    cards = []
    for key, (caption, color) in SHOWN.items():
        values = np.asarray(load[key], dtype=np.float64).reshape(len(times), len(labels)).T
        most = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
        detail = f"by stage; the darkest is {number(most)}"
        cards.append(
            figure(caption, detail, _map(caption, labels, times=times, values=values, most=most, color=color))
        )
    return charts("Stages over time", cards)


def _map(
    title: str, labels: Sequence[str], *, times: plots.Floats, values: plots.Floats, most: float, color: int
) -> str:
    """Draw the map. Adjacent cells of equal value are drawn as one."""
    rows = min(len(labels), _MOST_STAGES)
    axis, unit_s = plots.time_axis(float(times[-1]))
    right, bottom = plots.HALF - _RIGHT, rows * _ROW
    edges = axis.place(times / unit_s, _LEFT, right)
    parts = []
    for row in range(rows):
        y = row * _ROW
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(labels[row])}</text>')
        parts += _cells(values[row], edges, y, most, color)
    for tick in axis.ticks():
        x = float(axis.place(np.array([tick]), _LEFT, right)[0])
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{axis.tick_label(tick)}</text>'
        )
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{bottom + 27}" text-anchor="middle">{escape(axis.label)}</text>')
    size = f"0 0 {plots.HALF} {bottom + _FOOT}"
    return f'<svg viewBox="{size}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _cells(values: plots.Floats, edges: plots.Floats, y: int, most: float, color: int) -> list[str]:
    """Draw a stage's cells, from each instant to the next; cells of 0 or unknown value are left out."""
    cells, start = [], 0
    for at in range(1, len(edges)):
        if at + 1 < len(edges) and values[at] == values[start]:
            continue
        value, width = float(values[start]), edges[at] - edges[start]
        if most > 0 and value > 0:
            shade = max(value / most, _FAINTEST)
            cells.append(
                f'<rect class="f{color}" x="{edges[start]:.1f}" y="{y}" width="{width:.1f}" '
                f'height="{_ROW - 2}" fill-opacity="{shade:.2f}"><title>{number(value)}</title></rect>'
            )
        start = at
    return cells
