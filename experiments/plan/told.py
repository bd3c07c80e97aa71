"""Formats a plan: for the console, the page and programs."""

from __future__ import annotations

from typing import Any, Final

from experiments.plan.answer import Candidate, Plan
from experiments.plan.plan_words import CHEAPEST, RATE
from experiments.report.metric_text import told
from experiments.report.number_text import NOTHING, counted, number

_MOST_ROWS: Final = 24


def sentence(plan: Plan) -> str:
    """Return the answer, and whether it flips inside the range of the step times."""
    asked, ends = plan.asked, plan.ends
    if ends.mid is None:
        most = counted(asked.own.get("max_gpus", 256), "GPU")
        return f"No layout meets {asked.objective} with up to {most}."
    if asked.find == RATE:
        return f"{_rates(plan)} Objective: {asked.objective}."
    best = plan.ranked[0]
    cost = f", {number(best.cost)} per hour" if best.cost is not None else ""
    size = counted(ends.mid, "GPU")
    return f"{size} ({best.found.layout.name}){cost}. Objective: {asked.objective}. {_flips(plan)}"


def _flips(plan: Plan) -> str:
    low, mid, high = plan.ends.low, plan.ends.mid, plan.ends.high
    if not plan.ends.flips:
        return "The same at both ends of the step times' error."
    ends = [f"{_gpus(end)} with all step times at their {name} end"
            for name, end in (("low", low), ("high", high)) if end != mid]  # fmt: skip
    return f"The answer flips inside the step times' error: {' and '.join(ends)}."


def _gpus(answer: int | None) -> str:
    return "no size" if answer is None else str(answer)


def _rates(plan: Plan) -> str:
    base, ends, layout = plan.rate_per_s, plan.ends, plan.details["layout"]

    def rate(factor: float | None) -> str:
        if factor is None:
            return "none"
        return f"{factor:.3g} times the trace" if base is None else f"{factor * base:.3g} requests/s"

    said = f"{counted(plan.asked.own['gpus'], 'GPU')} ({layout.name}) serve {rate(ends.mid)}"
    return f"{said}; {rate(ends.high)} to {rate(ends.low)} over the step times' error."


def remarks(plan: Plan) -> list[str]:
    """Return the remarks on the answer."""
    lines = []
    if plan.headroom is not None:
        most = " or more" if plan.headroom >= 4 else ""
        lines.append(f"head-room: the rate may grow {plan.headroom:.2f} times{most} at this size")
    if plan.busiest is not None:
        lines.append(str(plan.busiest))
    for layout in dict.fromkeys(one.found.layout.hardware for one in plan.ranked):
        if layout in plan.asked.prices:
            lines.append(f"price of {layout}: {plan.asked.prices[layout]}")
    if not plan.asked.prices and plan.asked.find != CHEAPEST:
        lines.append("no price was given, so no money is told: price.NAME=NUMBER per GPU-hour")
    lines.append(counted(plan.runs, "run"))
    return lines


def head(plan: Plan) -> list[str]:
    """Return the columns of the ranked table."""
    return [
        "layout",
        "GPUs",
        "GPU-hours",
        "kWh",
        "cost/h",
        *(limit.metric for limit in plan.asked.objective.limits),
    ]


def rows(plan: Plan) -> list[list[str]]:
    """Return the ranked table: one row per layout with an answer."""
    return [_row(plan, one) for one in plan.ranked[:_MOST_ROWS]]


def _row(plan: Plan, one: Candidate) -> list[str]:
    outcome = one.found.outcome
    assert outcome is not None
    limits = [told(limit.metric, outcome.numbers.get(limit.metric)) for limit in plan.asked.objective.limits]
    kwh = number(outcome.numbers.get("energy.gpu_kwh"))
    cost = NOTHING if one.cost is None else number(one.cost)
    return [one.found.layout.name, str(one.found.gpus), number(one.gpu_hours), kwh, cost, *limits]


def unable(plan: Plan) -> list[list[str]]:
    """Return the layouts without an answer, and why."""
    return [[one.found.layout.name, why_not(plan, one)] for one in plan.unable[:_MOST_ROWS]]


def why_not(plan: Plan, one: Candidate) -> str:
    """Return one sentence on why a layout has no answer."""
    if one.dropped:
        return one.dropped
    if one.found.refused:
        return one.found.refused
    if not one.found.tried:
        return "no size within max_gpus"
    gpus = max(one.found.tried)
    limit = plan.asked.objective.limits[0]
    outcome = one.found.tried[gpus]
    return (
        f"{limit.metric} {told(limit.metric, outcome.numbers.get(limit.metric))} with {counted(gpus, 'GPU')}"
    )


def as_data(plan: Plan) -> dict[str, Any]:
    """Return the content of plan.json."""
    return {
        "objective": str(plan.asked.objective),
        "find": plan.asked.find,
        "answer": plan.ends.mid,
        "at_low_end": plan.ends.low,
        "at_high_end": plan.ends.high,
        "flips": plan.ends.flips,
        "headroom": plan.headroom,
        "rate_per_s": plan.rate_per_s,
        "runs": plan.runs,
        "busiest": None if plan.busiest is None else str(plan.busiest),
        "prices": {name: str(price) for name, price in plan.asked.prices.items()},
        "ranked": [_as_data(one) for one in plan.ranked],
        "without_answer": [{"layout": name, "why": why} for name, why in unable(plan)],
    }


def _as_data(one: Candidate) -> dict[str, Any]:
    outcome = one.found.outcome
    assert outcome is not None
    return {
        "layout": one.found.layout.name,
        "words": list(one.found.layout.words_of(one.found.gpus or 0)),
        "gpus": one.found.gpus,
        "gpu_hours": one.gpu_hours,
        "cost": one.cost,
        "numbers": outcome.numbers,
    }
