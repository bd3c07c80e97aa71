"""Tells which layouts of a plan could not be asked, and which are ranked by step times of other sources."""

from collections.abc import Sequence
from typing import Final

from hwmodels.step_times.aiconfigurator_library import knows
from servetwin.planning.candidate import Candidate, PlanAnswer

# How hwmodels begins to say that weights leave no memory: such a layout was asked, and the answer is no.
_TOO_LARGE: Final = "does not fit into"
_LIBRARY: Final = "aiconfigurator"


def not_asked(plan: PlanAnswer) -> list[str]:
    """Return the remark on layouts that no size of which could be run; none if all could."""
    refused = [one.search for one in plan.unable if one.search.refused and not one.search.not_searched]
    refused = [search for search in refused if _TOO_LARGE not in search.refused]
    if not refused:
        return []
    every = len(plan.ranked) + len(plan.unable)
    layouts = "layout" if every == 1 else "layouts"
    first = refused[0]
    return [f"{len(refused)} of {every} {layouts} could not be asked; {first.layout.name}: {first.refused}"]


def source_of(candidate: Candidate) -> str:
    """Return the kind of the source of a ranked layout's step times."""
    outcome = candidate.search.outcome
    return "" if outcome is None else outcome.step_time


def sources_differ(ranked: Sequence[Candidate]) -> bool:
    """Return whether the rows of a ranking have step times of several sources."""
    return len({source_of(candidate) for candidate in ranked}) > 1


def mixed_sources(plan: PlanAnswer) -> list[str]:
    """Return the remark on such a ranking: the sources, and the words that give all rows the same one."""
    if not sources_differ(plan.ranked):
        return []
    kinds = sorted({source_of(candidate) for candidate in plan.ranked})
    hardware = [candidate.search.layout.hardware for candidate in plan.ranked]
    one = _LIBRARY if _LIBRARY in kinds and all(map(knows, hardware)) else "roofline"
    return [
        f"step times are of several sources ({', '.join(kinds)}), whose errors differ: "
        f"rows nearer than these are not told apart; engine.step_time={one} gives all rows one source"
    ]
