"""``report.html`` of a plan: the answer, ranked layouts, results by size, and the Pareto chart."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

import numpy as np

from servetwin.planning.candidate import Candidate, PlanAnswer
from servetwin.planning.deploy import lines_of
from servetwin.planning.ranking import price_of
from servetwin.planning.text import head, not_searched, remarks, rows, sentence, tried_sizes, unable
from servetwin.report import plots
from servetwin.report.answer_page import COLORS, answer, command, page, table
from servetwin.report.figures import figure
from servetwin.report.metric_text import name_of, value_text
from servetwin.report.number_text import number
from servetwin.report.page_parts import card, charts

_FOOT: Final = (
    "Every number is of a simulated run; a run that missed the objective for certain was stopped, and has a "
    "bound in place of a number. docs/how-to/PLAN.md says how sizes are searched and what is assumed."
)


def plan_page(plan: PlanAnswer, words: str) -> str:
    """Return the HTML of the whole page."""
    facts = "".join(f'<span class="chip">{escape(text)}</span>' for text in remarks(plan))
    headline, stop, rest = sentence(plan).partition(". ")
    parts = [answer(rest) if rest else "", f'<p class="chips">{facts}</p>']
    if plan.ranked:
        parts.append(table("Layouts that meet it, best first", head(plan), rows(plan)))
        parts.append(charts("What a size gives", [_sizes(plan), _pareto(plan)]))
    if without := unable(plan):
        parts.append(table("Layouts without an answer", ["layout", "why"], without, words=2))
    if left := not_searched(plan):
        parts.append(table("Layouts not searched further", ["layout", "why"], left, words=2))
    if plan.ranked:
        sizes = [[name, str(gpus), result] for name, gpus, result in tried_sizes(plan)]
        parts.append(table("Sizes that were run", ["layout", "GPUs", "result"], sizes))
    if plan.deploy is not None:
        parts.append(card("To deploy", f"<pre>{escape(chr(10).join(lines_of(plan.deploy)))}</pre>"))
    parts.append(command(words))
    return page("Plan", headline + stop.rstrip(), " ".join(plan.options.words), parts, _FOOT)


def _values_by_size(candidate: Candidate, metric: str) -> list[tuple[float, float]]:
    pairs = [(gpus, outcome.numbers.get(metric)) for gpus, outcome in sorted(candidate.search.tried.items())]
    return [(float(gpus), value) for gpus, value in pairs if value is not None]


def _sizes(plan: PlanAnswer) -> str:
    """Draw the first limit's number at every size that was run."""
    limit = plan.options.objective.limits[0]
    shown = [candidate for candidate in plan.ranked[:COLORS] if _values_by_size(candidate, limit.metric)]
    series = []
    for color, candidate in enumerate(shown, 1):
        x, y = np.array(_values_by_size(candidate, limit.metric), dtype=np.float64).T
        series.append(plots.Series(candidate.search.layout.name, x, y, color))
        series.append(plots.Series(candidate.search.layout.name, x, y, color, "points"))
    x_axis = plots.linear_axis("GPUs", *(line.x for line in series), whole=True)
    y_axis = plots.log_axis(
        name_of(limit.metric), *(line.y for line in series), write=_value_writer(limit.metric)
    )
    rule = plots.Rule("y", limit.value, "objective")
    legend = [(color, candidate.search.layout.name) for color, candidate in enumerate(shown, 1)]
    svg = plots.line_plot("What a size gives", series, x_axis, y_axis, rules=[rule])
    return figure(name_of(limit.metric), "at the sizes that were run to the end; logarithmic", svg, legend)


def _pareto(plan: PlanAnswer) -> str:
    """Draw cost (or GPUs) against the first limit's number: every run, and a line through the best."""
    limit = plan.options.objective.limits[0]
    priced = all(candidate.cost is not None for candidate in plan.ranked)
    unit = f", {plan.options.currency}" if plan.options.currency else ""
    label = f"cost per hour{unit}" if priced else "GPUs held"
    points = sorted(_points(plan, limit.metric, priced))
    if not points:
        return ""
    best = front(points, limit.at_most)
    x, y = np.array(points, dtype=np.float64).T
    fx, fy = np.array(best, dtype=np.float64).T
    cloud = plots.Series("runs", x, y, 2, "points")
    line = plots.Series("nothing is both cheaper and better", fx, fy, 1)
    x_axis = plots.linear_axis(label, x, write=number)
    y_axis = plots.log_axis(name_of(limit.metric), y, write=_value_writer(limit.metric))
    rules = [plots.Rule("y", limit.value, "objective")]
    svg = plots.line_plot("Pareto front", [cloud, line], x_axis, y_axis, rules=rules)
    legend = [(2, "a run"), (1, "nothing is both cheaper and better")]
    return figure(f"{name_of(limit.metric)} against {label}", "", svg, legend)


def _points(plan: PlanAnswer, metric: str, priced: bool) -> list[tuple[float, float]]:
    points = []
    for candidate in plan.ranked:
        price = price_of(plan.options, candidate.search.layout)
        each = price.per_gpu_hour if priced and price else 1.0
        for numbers in (outcome.numbers for outcome in candidate.search.tried.values()):
            if numbers.get(metric, 0.0) > 0:
                points.append((each * numbers["gpu_seconds"] / numbers["duration_s"], numbers[metric]))
    return points


def front(points: list[tuple[float, float]], at_most: bool) -> list[tuple[float, float]]:
    """Return, by ascending cost, the points that no cheaper point beats."""
    best: list[tuple[float, float]] = []
    for cost, value in points:
        if not best or (value < best[-1][1] if at_most else value > best[-1][1]):
            best.append((cost, value))
    return best


def _value_writer(metric: str) -> Callable[[float], str]:
    return lambda value: value_text(metric, value)
