"""Panels of a figure from its numbers: ours as lines, the paper's points as circles."""

from collections.abc import Sequence
from statistics import fmean

from experiments.common.figure import Line, Measured, Panel


def panels_of(numbers: Sequence[Measured], x_label: str) -> tuple[Panel, ...]:
    """One panel for each panel and metric, in the order of the numbers."""
    by_axes: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for one in numbers:
        by_axes.setdefault((one.panel, one.metric), {}).setdefault(one.system, []).append(one)
    return tuple(
        Panel(f"{panel}, {metric}" if panel else metric, x_label, metric, _lines(systems))
        for (panel, metric), systems in by_axes.items()
    )


def _lines(systems: dict[str, list[Measured]]) -> tuple[Line, ...]:
    lines = []
    for name, points in systems.items():
        x = [one.x for one in points]
        lines.append(Line(name, x, [fmean(one.values) for one in points], ".-"))
        paper = [one for one in points if one.paper is not None]
        if paper:
            y = [one.paper for one in paper if one.paper is not None]
            lines.append(Line(f"{name}, paper", [one.x for one in paper], y, "o:"))
    return tuple(lines)
