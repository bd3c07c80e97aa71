"""Searches several layouts in rounds of one run each, and leaves out what can no longer be the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hwmodels.errors import HardwareError
from servetwin.planning.layout import Layout
from servetwin.planning.objective import beyond_context
from servetwin.planning.plan_words import CHEAPEST, PlanWords
from servetwin.planning.probe import in_words_of_a_plan, prepared_for, probe
from servetwin.planning.search import LayoutSearch, LayoutSteps
from servetwin.report.number_text import counted, number
from servetwin.run.crew import Submit, in_order
from servetwin.sweeps.outcome import PointOutcome
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

_NO_ADMISSION: Final = "none"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a layout before its first run.

    ``refused``: why no size runs; empty if some may. ``gpus``: as many as the workload would keep busy, 0 if
    unknown. ``beyond_context``: at least so many requests are rejected for their length at every size.
    ``static``: every size holds all its GPUs from the first event to the last.
    """

    refused: str = ""
    gpus: int = 0
    beyond_context: int = 0
    static: bool = False


def known_of(layout: Layout, words: tuple[str, ...]) -> Known:
    """Return what is known of a layout; runs in a process of the crew."""
    from servetwin.assemble.lengths import is_within_context

    every = (*words, *layout.words_of(layout.least))
    if refused := _fits_nowhere(every):
        return Known(refused=refused)
    try:
        prepared = prepared_for(every)
        within = is_within_context(prepared.config, prepared.workload, prepared.limits)
    except (UserError, TraceError, HardwareError):  # a larger size may run; the runs report errors
        return Known()
    config = prepared.config
    beyond = int((~within[config.trace.warmup_requests :]).sum())
    return Known(
        gpus=guess_gpus(layout, words),
        beyond_context=beyond if config.system.admission.name == _NO_ADMISSION else 0,
        static=prepared.start is None,
    )


def _fits_nowhere(words: tuple[str, ...]) -> str:
    """Return why an instance of the layout does not run, of which every size has some; "" if it may."""
    from servetwin.assemble.hardware import hardware_of
    from servetwin.assemble.library_tables import with_library_tables
    from servetwin.config.compose.compose import load_config

    try:
        hardware_of(with_library_tables(load_config([*words, "out=none"], "simulate")))
    except HardwareError as error:
        return in_words_of_a_plan(str(error))
    except (UserError, TraceError):  # of this size, perhaps
        pass
    return ""


def guess_gpus(layout: Layout, words: tuple[str, ...]) -> int:
    """Return the GPUs that the workload would keep busy; 0 if unknown."""
    from servetwin.assemble.workload import run_capacity_req_per_s

    try:
        prepared = prepared_for((*words, *layout.words_of(layout.least)))
        each = run_capacity_req_per_s(prepared.config, prepared.estimates, 1, prepared.workload)
        rate = prepared.workload.mean_rate_per_s or 0.0
        return math.ceil(rate / each) * layout.tp * layout.pp
    except Exception:  # only a guess: the run itself reports errors
        return 0


class _Searched:
    """One layout on its way through the rounds."""

    def __init__(self, layout: Layout, known: Known, most_gpus: int) -> None:
        self.known, self.steps = known, LayoutSteps(layout, most_gpus, known.gpus)
        self.not_searched = ""
        if known.refused:
            self.refused = LayoutSearch(layout, "mid", None, {layout.least: PointOutcome({}, known.refused)})

    @property
    def goes_on(self) -> bool:
        """Whether it has another size to run."""
        return not (self.known.refused or self.not_searched) and self.steps.next_gpus is not None

    def result(self) -> LayoutSearch:
        """The result, once it does not go on."""
        return self.refused if self.known.refused else self.steps.search("mid", self.not_searched)


def search_all(
    options: PlanWords,
    layouts: Sequence[Layout],
    words: tuple[str, ...],
    submit: Submit,
    *,
    most_gpus: int,
    best_alone: bool,
    tell: Callable[[int], None] | None = None,
) -> list[LayoutSearch]:
    """Search every layout. ``best_alone``: one that can no longer be the best is not searched further.

    A round runs one size of every layout, so that it does not depend on the processes what is left out.
    """
    objective = None if options.runs_whole else options.objective
    facts = in_order([submit(known_of, layout, words) for layout in layouts])
    every = [_Searched(layout, known, most_gpus) for layout, known in zip(layouts, facts, strict=True)]
    while rest := [one for one in every if one.goes_on]:
        if tell is not None:
            tell(len(every) - len(rest))
        asked = [(*words, *one.steps.layout.words_of(one.steps.next_gpus or 0)) for one in rest]
        outcomes = in_order([submit(probe, run, "mid", objective) for run in asked])
        for one, outcome in zip(rest, outcomes, strict=True):
            one.steps.take(outcome, options.objective.met_by(outcome.numbers))
        if best_alone:
            _leave_out(options, every)
    return [one.result() for one in every]


def _leave_out(options: PlanWords, every: Sequence[_Searched]) -> None:
    """End the search of each layout that some size of another is sure to be ranked before."""
    ahead = [standing for one in every if (standing := _standing(options, one)) is not None]
    for one in every:
        if not one.goes_on:
            continue
        least = _least(options, one)
        if any(beyond <= one.known.beyond_context and most < least for beyond, most in ahead):
            one.not_searched = f"cannot {_told(options, least)}"


def _standing(options: PlanWords, one: _Searched) -> tuple[float, float] | None:
    """Return the requests beyond the context and the most that the layout's answer can take, once it has one.

    What it takes is GPUs or, if the cheapest is asked for, cost.
    """
    gpus = one.steps.met_gpus
    if gpus is None:
        return None
    beyond = beyond_context(one.steps.tried[gpus].numbers)
    if options.find != CHEAPEST:
        return beyond, float(gpus)
    if not one.known.static:
        return None
    return beyond, gpus * _price(options, one)


def _least(options: PlanWords, one: _Searched) -> float:
    """Return the least that the layout's answer can take: GPUs or cost, which is unknown if it scales."""
    if options.find != CHEAPEST:
        return float(one.steps.fewest_gpus)
    return one.steps.fewest_gpus * _price(options, one) * (1 - 1e-9) if one.known.static else 0.0


def _price(options: PlanWords, one: _Searched) -> float:
    return options.prices[one.steps.layout.hardware].per_gpu_hour


def _told(options: PlanWords, least: float) -> str:
    if options.find != CHEAPEST:
        return f"need fewer than {counted(round(least), 'GPU')}"
    unit = f" {options.currency}" if options.currency else ""
    return f"cost less than {number(least)}{unit} per hour"
