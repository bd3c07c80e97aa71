"""Formats a plan: for the console, the page and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from servetwin.planning.candidate import Candidate, Plan
from servetwin.planning.objective import Limit
from servetwin.planning.plan_words import CHEAPEST, GPUS, RATE
from servetwin.planning.ranking import as_fast, cells_of, equal_to, rejected_by, tied_with
from servetwin.report.metric_text import told
from servetwin.report.number_text import counted, number

REJECTED: Final = "rejected"
_MOST_ROWS: Final = 24
_MOST_NAMED: Final = 6


def sentence(plan: Plan) -> str:
    """Return the answer, and whether it flips inside the range of the step times."""
    asked, ends = plan.asked, plan.ends
    if ends.mid is None:
        if asked.find == RATE:
            return f"No rate of the trace meets {asked.objective} with {counted(asked.own['gpus'], 'GPU')}."
        most = counted(asked.own.get("max_gpus", 256), "GPU")
        return f"No layout meets {asked.objective} with up to {most}."
    if asked.find == RATE:
        return f"{_rates(plan)} Objective: {asked.objective}."
    best = plan.ranked[0]
    unit = f" {asked.currency}" if asked.currency else ""
    cost = f", {number(best.cost)}{unit} per hour" if best.cost is not None else ""
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
    lines += _ties(plan)
    for layout in dict.fromkeys(one.found.layout.hardware for one in plan.ranked):
        if layout in plan.asked.prices:
            lines.append(f"price of {layout}: {plan.asked.prices[layout]}")
    if not plan.asked.prices and plan.asked.find == GPUS:
        lines.append("no price was given, so no money is told: price.NAME=NUMBER per GPU-hour")
    lines.append(counted(plan.runs, "run"))
    return lines


def _ties(plan: Plan) -> list[str]:
    """Name the layouts that are as good as the first, which only its name or another number puts first."""
    asked, ranked = plan.asked, plan.ranked
    if asked.find == RATE:
        same = _equal(plan)
        return [f"not told apart from it by the search, to 2 %: {_listed(same)}"] if same else []
    lines = []
    if same := _equal(plan):
        lines.append(f"equal to it in every number shown, so any of them is an answer: {_listed(same)}")
    if tied := tied_with(asked, ranked):
        what = "as cheap" if asked.find == CHEAPEST else "as few GPUs"
        lines.append(f"{what}, and ranked behind it by {asked.objective.limits[0].metric}: {_listed(tied)}")
    return lines


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + more


def head(plan: Plan) -> list[str]:
    """Return the columns of the ranked table."""
    cost = f"{plan.asked.currency}/h" if plan.asked.currency else "cost/h"
    limits = [limit.metric for limit in plan.asked.objective.limits]
    return ["layout", "GPUs", "GPU-hours", "kWh", cost, *limits, *([REJECTED] if _rejects(plan) else [])]


def _rejects(plan: Plan) -> bool:
    return any(map(rejected_by, plan.ranked))


def rows(plan: Plan) -> list[list[str]]:
    """Return the ranked table: one row per layout with an answer."""
    shown = None if _rejects(plan) else -1
    return [[one.found.layout.name, *cells_of(plan.asked, one)[:shown]] for one in plan.ranked[:_MOST_ROWS]]


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
    outcome = one.found.tried[gpus]
    if lacking := plan.asked.objective.unanswered(outcome.numbers):
        return f"{lacking} with {counted(gpus, 'GPU')}"
    limit = _missed(plan, outcome.numbers)
    return (
        f"{limit.metric} {told(limit.metric, outcome.numbers.get(limit.metric))} with {counted(gpus, 'GPU')}"
    )


def _missed(plan: Plan, numbers: Mapping[str, float]) -> Limit:
    """Return the first limit that the numbers miss, the first of all if none."""
    limits = plan.asked.objective.limits
    return next((limit for limit in limits if not limit.met_by(numbers)), limits[0])


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
        "currency": plan.asked.currency or None,
        "equal": _equal(plan),
        "tied": tied_with(plan.asked, plan.ranked),
        "prices": {name: str(price) for name, price in plan.asked.prices.items()},
        "ranked": [_as_data(one) for one in plan.ranked],
        "without_answer": [{"layout": name, "why": why} for name, why in unable(plan)],
    }


def _equal(plan: Plan) -> list[str]:
    if plan.asked.find == RATE:
        return as_fast(plan.details.get("factors", ()))
    return equal_to(plan.asked, plan.ranked[0], plan.ranked) if plan.ranked else []


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
