"""Ranks layouts, and names those whose results are equal to another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from servetwin.planning.candidate import Candidate
from servetwin.planning.layout import Layout
from servetwin.planning.objective import beyond_context
from servetwin.planning.plan_words import CHEAPEST, PlanWords
from servetwin.planning.prices import Price
from servetwin.planning.search import RATE_STEP, LayoutSearch
from servetwin.report.metric_text import value_text
from servetwin.report.number_text import NOTHING, number

GPU_KWH: Final = "energy.gpu_kwh"


def ranked_layouts(
    options: PlanWords, searches: Sequence[LayoutSearch]
) -> tuple[list[Candidate], list[Candidate]]:
    """Return candidates with an answer, best first, and the others."""
    every = [Candidate(search, cost_of(options, search)) for search in searches]
    able = sorted(
        (candidate for candidate in every if candidate.search.gpus is not None),
        key=lambda candidate: _rank(options, candidate),
    )
    return able, [candidate for candidate in every if candidate.search.gpus is None]


def _rank(options: PlanWords, candidate: Candidate) -> tuple[float, float, float, float, str]:
    """Return the order; a layout whose context is too short for more requests is behind the others.

    Among layouts of equally many GPUs the one whose scaler holds fewer of them is first.
    """
    gpus = float(candidate.search.gpus or 0)
    first = (candidate.cost or 0.0) if options.find == CHEAPEST else gpus
    limit = options.objective.limits[0]
    outcome = candidate.search.outcome
    second = outcome.numbers.get(limit.metric, 0.0) if outcome else 0.0
    return (
        _beyond_context(candidate),
        first,
        gpus_held(candidate),
        second if limit.at_most else -second,
        candidate.search.layout.name,
    )


def gpus_held(candidate: Candidate) -> float:
    """Return how many GPUs the run held on average: with a scaler fewer than there are."""
    outcome = candidate.search.outcome
    if outcome is None:
        return 0.0
    return round(outcome.numbers["gpu_seconds"] / outcome.numbers["duration_s"], 3)


def _beyond_context(candidate: Candidate) -> float:
    outcome = candidate.search.outcome
    return 0.0 if outcome is None else beyond_context(outcome.numbers)


def rejected_by(candidate: Candidate) -> int:
    """Return the requests that the layout rejects at its answer."""
    outcome = candidate.search.outcome
    return 0 if outcome is None else int(outcome.numbers.get("requests.rejected", 0))


def cost_of(options: PlanWords, search: LayoutSearch) -> float | None:
    """Return the hourly cost of the GPUs that the run held on average."""
    price = price_of(options, search.layout)
    if price is None or search.outcome is None:
        return None
    numbers = search.outcome.numbers
    return price.per_gpu_hour * numbers["gpu_seconds"] / numbers["duration_s"]


def price_of(options: PlanWords, layout: Layout) -> Price | None:
    """Return the price of the layout's GPUs."""
    return options.prices.get(layout.hardware)


def shown_metrics(options: PlanWords) -> list[str]:
    """Return the metrics of the limits, and P99 of TTFT and TPOT beside them."""
    limits = [limit.metric for limit in options.objective.limits]
    return list(dict.fromkeys([*limits, "ttft_ms.p99", "tpot_ms.p99"]))


def cells_of(options: PlanWords, candidate: Candidate) -> list[str]:
    """Return what a table shows of a layout with an answer, besides its name."""
    outcome = candidate.search.outcome
    assert outcome is not None
    limits = [value_text(metric, outcome.numbers.get(metric)) for metric in shown_metrics(options)]
    cost = NOTHING if candidate.cost is None else number(candidate.cost)
    kwh = number(outcome.numbers.get(GPU_KWH))
    return [
        str(candidate.search.gpus),
        number(candidate.gpu_hours),
        kwh,
        cost,
        *_token_cost(options, candidate),
        *limits,
        number(rejected_by(candidate)),
    ]


def _token_cost(options: PlanWords, candidate: Candidate) -> list[str]:
    """Return the cost of a million output tokens, a column of plans with prices."""
    each = candidate.cost_per_million
    return [NOTHING if each is None else number(each[0])] if options.prices else []


def equal_to(options: PlanWords, candidate: Candidate, rest: Sequence[Candidate]) -> list[str]:
    """Return the names of the other layouts whose shown numbers are all the same."""
    cells = cells_of(options, candidate)
    return [
        other.search.layout.name
        for other in rest
        if other is not candidate and cells_of(options, other) == cells
    ]


def tied_with(options: PlanWords, ranked: Sequence[Candidate]) -> list[str]:
    """Return the layouts that cost as little as the first, as shown, and differ from it in another number."""
    if not ranked:
        return []
    first, same = ranked[0], equal_to(options, ranked[0], ranked)
    criterion = _criterion(options, first)
    return [
        candidate.search.layout.name
        for candidate in ranked[1:]
        if _criterion(options, candidate) == criterion and candidate.search.layout.name not in same
    ]


def _criterion(options: PlanWords, candidate: Candidate) -> tuple[float, str, float]:
    shown = number(candidate.cost) if options.find == CHEAPEST else str(candidate.search.gpus)
    return _beyond_context(candidate), shown, gpus_held(candidate)


def as_fast(factors: Sequence[tuple[str, float]]) -> list[str]:
    """Return the layouts whose highest rate is within ``RATE_STEP`` of the best one's, in the order given."""
    return [name for name, factor in factors[1:] if factor * RATE_STEP >= factors[0][1]]
