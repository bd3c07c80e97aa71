"""Panels of a figure from its numbers: ours as lines, the paper's points as circles."""

from collections.abc import Collection, Sequence
from statistics import fmean

from experiments.common.figure import MeasuredPoint, Panel, PlotLine


def panels_of(
    numbers: Sequence[MeasuredPoint], x_label: str, *, log_x: bool = False, log_y: Collection[str] = ()
) -> tuple[Panel, ...]:
    """One panel for each panel and metric, in the order of the numbers. log_y: metrics on such a scale."""
    by_axes: dict[tuple[str, str], dict[str, list[MeasuredPoint]]] = {}
    for point in numbers:
        by_axes.setdefault((point.panel, point.metric), {}).setdefault(point.system, []).append(point)
    return tuple(
        Panel(
            f"{panel}, {metric}" if panel else metric,
            x_label,
            metric,
            _lines(systems),
            log_x=log_x,
            log_y=metric in log_y,
        )
        for (panel, metric), systems in by_axes.items()
    )


def _lines(systems: dict[str, list[MeasuredPoint]]) -> tuple[PlotLine, ...]:
    lines = []
    for name, points in systems.items():
        x = [point.x for point in points]
        lines.append(PlotLine(name, x, [fmean(point.values) for point in points], ".-"))
        paper = [(point.x, point.paper) for point in points if point.paper is not None]
        if paper:
            lines.append(PlotLine(f"{name}, paper", [x for x, _ in paper], [y for _, y in paper], "o:"))
    return tuple(lines)
