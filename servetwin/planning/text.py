"""Formats a plan: for the console, the page and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from servetwin.planning.asked import mixed_sources, not_asked, source_of, sources_differ
from servetwin.planning.candidate import Candidate, PlanAnswer
from servetwin.planning.identical import identical_words
from servetwin.planning.missed import why_no_size
from servetwin.planning.plan_words import CHEAPEST, GPUS, RATE
from servetwin.planning.ranking import (
    as_fast,
    cells_of,
    equal_to,
    rejected_by,
    shown_metrics,
    tied_with,
)
from servetwin.report.metric_text import name_of, value_text
from servetwin.report.number_text import counted, number
from traces.synthetic.registry import DESCRIPTIONS

REJECTED: Final = "rejected"
SOURCE: Final = "step times"
_MOST_ROWS: Final = 24
_MOST_NAMED: Final = 6
NOT_SEARCHED: Final = "not searched further"


def sentence(plan: PlanAnswer) -> str:
    """Return the answer, and whether it flips inside the range of the step times."""
    options, ends = plan.options, plan.ends
    if ends.mid is None:
        if options.find == RATE:
            gpus = counted(options.own["gpus"], "GPU")
            return f"No rate of the trace meets {options.objective.in_words} with {gpus}."
        most = counted(options.own.get("max_gpus", 256), "GPU")
        return f"No layout meets {options.objective.in_words} with up to {most}."
    if options.find == RATE:
        return _rates(plan)
    best = plan.ranked[0]
    unit = f" {options.currency}" if options.currency else ""
    cost = f", for {number(best.cost)}{unit} per hour" if best.cost is not None else ""
    size, meet = counted(ends.mid, "GPU"), "meets" if ends.mid == 1 else "meet"
    return f"{size} ({best.search.layout.name}) {meet} {options.objective.in_words}{cost}. {_flips(plan)}"


def _flips(plan: PlanAnswer) -> str:
    low, mid, high = plan.ends.low, plan.ends.mid, plan.ends.high
    if not plan.ends.flips:
        return "This layout needs the same at both ends of the step times' error."
    ends = [f"{_gpus(end)} with all step times at their {name} end{_why_at(plan, name)}"
            for name, end in (("low", low), ("high", high)) if end != mid]  # fmt: skip
    return f"The answer flips inside the step times' error: {' and '.join(ends)}."


def _gpus(answer: int | None) -> str:
    return "no size" if answer is None else str(answer)


def _why_at(plan: PlanAnswer, end: str) -> str:
    """Return in brackets what is missed at an end of the range that no size answers."""
    search = plan.details.get(end)
    if search is None or search.gpus is not None:
        return ""
    return f" ({why_no_size(plan.options.objective, search)})"


def _rates(plan: PlanAnswer) -> str:
    base, ends, layout = plan.rate_per_s, plan.ends, plan.details["layout"]

    def rate(factor: float | None) -> str:
        if factor is None:
            return "none"
        return f"{factor:.3g} times the trace" if base is None else f"{factor * base:.3g} requests/s"

    gpus = plan.options.own["gpus"]
    serve = "serves" if gpus == 1 else "serve"
    answer = f"{counted(gpus, 'GPU')} ({layout.name}) {serve} {rate(ends.mid)}"
    between = f"{rate(ends.high)} to {rate(ends.low)} over the step times' error"
    return f"{answer} with {plan.options.objective.in_words}; {between}."


def remarks(plan: PlanAnswer) -> list[str]:
    """Return the remarks on the answer."""
    lines = [*not_asked(plan), *mixed_sources(plan)]
    lines += [f"weights and KV: {plan.precision}"] if plan.precision else []
    if plan.headroom is not None:
        most = " or more" if plan.headroom >= 4 else ""
        lines.append(f"head-room: the rate may grow {plan.headroom:.2f} times{most} at this size")
    if plan.busiest is not None:
        lines.append(str(plan.busiest))
    lines += identical_words(plan.same_lengths)
    lines += _of_tokens(plan)
    lines += _ties(plan)
    lines += _one_draw(plan)
    for layout in dict.fromkeys(candidate.search.layout.hardware for candidate in plan.ranked):
        if layout in plan.options.prices:
            lines.append(f"price of {layout}: {plan.options.prices[layout]}")
    if not plan.options.prices and plan.options.find == GPUS:
        lines.append("no price was given, so no money is told: price.NAME=NUMBER per GPU-hour")
    lines.append(counted(plan.runs, "run"))
    return lines


def _one_draw(plan: PlanAnswer) -> list[str]:
    """Say that another draw of a drawn trace may be answered otherwise."""
    given = dict(word.partition("=")[::2] for word in plan.options.words)
    if given.get("trace") not in DESCRIPTIONS:
        return []
    seed = given.get("seed", "0")
    others = " and ".join(f"seed={other}" for other in ("0", "1", "2") if other != seed)
    return [f"one draw of the trace (seed={seed}): ask again with {others}"]


def _of_tokens(plan: PlanAnswer) -> list[str]:
    """Say what tokens cost at the answer, at the rate of this load."""
    if not plan.ranked or (each := plan.ranked[0].cost_per_million) is None:
        return []
    unit = f" {plan.options.currency}" if plan.options.currency else ""
    output, every = (f"{number(cost)}{unit}" for cost in each)
    return [f"cost at this load: {output} per million output tokens, {every} per million of all tokens"]


def _ties(plan: PlanAnswer) -> list[str]:
    """Name the layouts that are as good as the first, which only its name or another number puts first."""
    options, ranked = plan.options, plan.ranked
    if options.find == RATE:
        same = _equal_layouts(plan)
        return [f"not told apart from it by the search, to 2 %: {_join_names(same)}"] if same else []
    lines = []
    if same := _equal_layouts(plan):
        lines.append(f"equal to it in every number shown, so any of them is an answer: {_join_names(same)}")
    if tied := tied_with(options, ranked):
        comparison = "as cheap" if options.find == CHEAPEST else "as few GPUs"
        by = name_of(options.objective.limits[0].metric)
        lines.append(f"{comparison}, and ranked behind it by {by}: {_join_names(tied)}")
    return lines


def _join_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + rest


def head(plan: PlanAnswer) -> list[str]:
    """Return the columns of the ranked table."""
    cost = f"{plan.options.currency}/h" if plan.options.currency else "cost/h"
    limits = [name_of(metric) for metric in shown_metrics(plan.options)]
    last = [*([REJECTED] if _rejects(plan) else []), *([SOURCE] if sources_differ(plan.ranked) else [])]
    tokens = [f"{plan.options.currency or 'cost'}/M output"] if plan.options.prices else []
    return ["layout", "GPUs", "GPU-hours", "kWh", cost, *tokens, *limits, *last]


def _rejects(plan: PlanAnswer) -> bool:
    return any(map(rejected_by, plan.ranked))


def rows(plan: PlanAnswer) -> list[list[str]]:
    """Return the ranked table: one row per layout with an answer."""
    shown, differ = None if _rejects(plan) else -1, sources_differ(plan.ranked)
    return [
        [
            candidate.search.layout.name,
            *cells_of(plan.options, candidate)[:shown],
            *([source_of(candidate)] if differ else []),
        ]
        for candidate in plan.ranked[:_MOST_ROWS]
    ]


def unable(plan: PlanAnswer) -> list[list[str]]:
    """Return the layouts without an answer, and why."""
    rest = [candidate for candidate in plan.unable if not candidate.search.not_searched]
    return [[candidate.search.layout.name, why_not(plan, candidate)] for candidate in rest[:_MOST_ROWS]]


def not_searched(plan: PlanAnswer) -> list[list[str]]:
    """Return the layouts whose answer was not sought, because it cannot be the best, and why it cannot."""
    left = [one.search for one in plan.unable if one.search.not_searched]
    return [[search.layout.name, search.not_searched] for search in left[:_MOST_ROWS]]


def tried_sizes(plan: PlanAnswer) -> list[tuple[str, int, str]]:
    """Return layout, GPUs and result of every size that was run, by layout.

    The result is the number of each limit or, of a run that stopped, only what was missed by then.
    """
    sizes = []
    for search in (candidate.search for candidate in (*plan.ranked, *plan.unable)):
        for gpus, outcome in sorted(search.tried.items()):
            if not outcome.refused:
                sizes.append(
                    (search.layout.name, gpus, outcome.stopped or _numbers_told(plan, outcome.numbers))
                )
    return sizes


def _numbers_told(plan: PlanAnswer, numbers: Mapping[str, float]) -> str:
    metrics = [limit.metric for limit in plan.options.objective.limits]
    return "; ".join(f"{name_of(metric)} {value_text(metric, numbers.get(metric))}" for metric in metrics)


def why_not(plan: PlanAnswer, candidate: Candidate) -> str:
    """Return one sentence on why a layout has no answer."""
    return candidate.dropped or why_no_size(plan.options.objective, candidate.search)


def as_data(plan: PlanAnswer) -> dict[str, Any]:
    """Return the content of plan.json."""
    return {
        "sentence": sentence(plan),
        "objective": str(plan.options.objective),
        "find": plan.options.find,
        "answer": plan.ends.mid,
        "at_low_end": plan.ends.low,
        "at_high_end": plan.ends.high,
        "flips": plan.ends.flips,
        "headroom": plan.headroom,
        "rate_per_s": plan.rate_per_s,
        "runs": plan.runs,
        "precision": plan.precision or None,
        "deploy": None if plan.deploy is None else plan.deploy.as_data(),
        "busiest": None if plan.busiest is None else str(plan.busiest),
        "same_lengths": None if plan.same_lengths is None else list(plan.same_lengths),
        "currency": plan.options.currency or None,
        "equal": _equal_layouts(plan),
        "tied": tied_with(plan.options, plan.ranked),
        "prices": {name: str(price) for name, price in plan.options.prices.items()},
        "ranked": [_as_data(candidate) for candidate in plan.ranked],
        "without_answer": [{"layout": name, "why": why} for name, why in unable(plan)],
        "not_searched_further": [{"layout": name, "why": why} for name, why in not_searched(plan)],
        "tried": [{"layout": name, "gpus": gpus, "result": told} for name, gpus, told in tried_sizes(plan)],
    }


def _equal_layouts(plan: PlanAnswer) -> list[str]:
    if plan.options.find == RATE:
        return as_fast(plan.details.get("factors", ()))
    return equal_to(plan.options, plan.ranked[0], plan.ranked) if plan.ranked else []


def _as_data(candidate: Candidate) -> dict[str, Any]:
    outcome = candidate.search.outcome
    assert outcome is not None
    tokens = candidate.cost_per_million
    return {
        "layout": candidate.search.layout.name,
        "words": list(candidate.search.layout.words_of(candidate.search.gpus or 0)),
        "gpus": candidate.search.gpus,
        "gpu_hours": candidate.gpu_hours,
        "cost": candidate.cost,
        "cost_per_million_output_tokens": None if tokens is None else tokens[0],
        "cost_per_million_tokens": None if tokens is None else tokens[1],
        "step_times": source_of(candidate) or None,
        "numbers": outcome.numbers,
    }
