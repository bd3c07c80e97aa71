"""Ranks layouts, and tells which of them the ranking cannot tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from servetwin.planning.candidate import Candidate
from servetwin.planning.layout import Layout
from servetwin.planning.objective import beyond_context
from servetwin.planning.plan_words import CHEAPEST, PlanWords
from servetwin.planning.prices import Price
from servetwin.planning.search import RATE_STEP, Found
from servetwin.report.metric_text import told
from servetwin.report.number_text import NOTHING, number

GPU_KWH: Final = "energy.gpu_kwh"


def ranked_layouts(asked: PlanWords, found: Sequence[Found]) -> tuple[list[Candidate], list[Candidate]]:
    """Return candidates with an answer, best first, and the others."""
    every = [Candidate(one, cost_of(asked, one)) for one in found]
    able = sorted((one for one in every if one.found.gpus is not None), key=lambda one: _rank(asked, one))
    return able, [one for one in every if one.found.gpus is None]


def _rank(asked: PlanWords, one: Candidate) -> tuple[float, float, float, str]:
    """Return the order; a layout whose context is too short for more requests is behind the others."""
    gpus = float(one.found.gpus or 0)
    first = (one.cost or 0.0) if asked.find == CHEAPEST else gpus
    limit = asked.objective.limits[0]
    outcome = one.found.outcome
    second = outcome.numbers.get(limit.metric, 0.0) if outcome else 0.0
    return _beyond_context(one), first, second if limit.at_most else -second, one.found.layout.name


def _beyond_context(one: Candidate) -> float:
    outcome = one.found.outcome
    return 0.0 if outcome is None else beyond_context(outcome.numbers)


def rejected_by(one: Candidate) -> int:
    """Return the requests that the layout rejects at its answer."""
    outcome = one.found.outcome
    return 0 if outcome is None else int(outcome.numbers.get("requests.rejected", 0))


def cost_of(asked: PlanWords, one: Found) -> float | None:
    """Return the hourly cost of the GPUs that the run held on average."""
    price = price_of(asked, one.layout)
    if price is None or one.outcome is None:
        return None
    numbers = one.outcome.numbers
    return price.per_gpu_hour * numbers["gpu_seconds"] / numbers["duration_s"]


def price_of(asked: PlanWords, layout: Layout) -> Price | None:
    """Return the price of the layout's GPUs."""
    return asked.prices.get(layout.hardware)


def cells_of(asked: PlanWords, one: Candidate) -> list[str]:
    """Return what a table shows of a layout with an answer, besides its name."""
    outcome = one.found.outcome
    assert outcome is not None
    limits = [told(limit.metric, outcome.numbers.get(limit.metric)) for limit in asked.objective.limits]
    cost = NOTHING if one.cost is None else number(one.cost)
    kwh = number(outcome.numbers.get(GPU_KWH))
    return [str(one.found.gpus), number(one.gpu_hours), kwh, cost, *limits, number(rejected_by(one))]


def equal_to(asked: PlanWords, one: Candidate, others: Sequence[Candidate]) -> list[str]:
    """Return the names of the other layouts whose shown numbers are all the same."""
    cells = cells_of(asked, one)
    return [
        other.found.layout.name for other in others if other is not one and cells_of(asked, other) == cells
    ]


def tied_with(asked: PlanWords, ranked: Sequence[Candidate]) -> list[str]:
    """Return the layouts that cost as little as the first, as shown, and differ from it in another number."""
    if not ranked:
        return []
    first, same = ranked[0], equal_to(asked, ranked[0], ranked)
    criterion = _criterion(asked, first)
    return [
        one.found.layout.name
        for one in ranked[1:]
        if _criterion(asked, one) == criterion and one.found.layout.name not in same
    ]


def _criterion(asked: PlanWords, one: Candidate) -> tuple[float, str]:
    shown = number(one.cost) if asked.find == CHEAPEST else str(one.found.gpus)
    return _beyond_context(one), shown


def as_fast(factors: Sequence[tuple[str, float]]) -> list[str]:
    """Return the layouts whose highest rate the search cannot tell from the best one's; best first."""
    return [name for name, factor in factors[1:] if factor * RATE_STEP >= factors[0][1]]
