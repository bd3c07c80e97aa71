"""Says what a layout without an answer misses, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from servetwin.planning.objective import Limit, Objective
from servetwin.planning.probe import probe
from servetwin.planning.search import LayoutSearch
from servetwin.report.metric_text import name_of, value_text
from servetwin.report.number_text import counted
from servetwin.run.crew import Submit, in_order
from servetwin.sweeps.outcome import PointOutcome

_MOST: Final = 8  # layouts whose largest size is run to its end; the others say only what is missed


def why_no_size(objective: Objective, search: LayoutSearch) -> str:
    """Return what the largest size that ran misses, by how much; or why no size ran."""
    if search.refused:
        return search.refused
    if not search.tried:
        return "no size within max_gpus"
    gpus = max(search.tried)
    outcome, size = search.tried[gpus], counted(gpus, "GPU")
    if outcome.refused or outcome.stopped:
        return f"{outcome.refused or outcome.stopped} with {size}"
    if lacking := objective.unanswered(outcome.numbers):
        return f"{lacking} with {size}"
    missed = [limit for limit in objective.limits if not limit.met_by(outcome.numbers)]
    told = [_by_how_much(limit, outcome) for limit in missed or objective.limits[:1]]
    return f"{size}: {'; '.join(told)}"


def _by_how_much(limit: Limit, outcome: PointOutcome) -> str:
    value, asked = outcome.numbers.get(limit.metric), value_text(limit.metric, limit.value)
    told = f"{name_of(limit.metric)} {value_text(limit.metric, value)}"
    if value is None:
        return told
    return f"{told}, {value / limit.value:.3g} times the {asked} {'allowed' if limit.at_most else 'asked'}"


def run_to_the_end(
    searches: Sequence[LayoutSearch], words: tuple[str, ...], submit: Submit
) -> tuple[list[LayoutSearch], int]:
    """Return the searches, and how many runs more this took.

    A run that a rule stopped knows what is missed and not by how much: of searches without an answer the
    largest size is run again, to its end.
    """
    again = [search for search in searches if _was_stopped(search)][:_MOST]
    runs = [
        submit(probe, (*words, *search.layout.words_of(max(search.tried))), search.end) for search in again
    ]
    whole = {
        id(search): replace(search, tried={**search.tried, max(search.tried): outcome})
        for search, outcome in zip(again, in_order(runs), strict=True)
    }
    return [whole.get(id(search), search) for search in searches], len(again)


def _was_stopped(search: LayoutSearch) -> bool:
    ended = search.gpus is None and search.tried and not search.not_searched
    return bool(ended and search.tried[max(search.tried)].stopped)
