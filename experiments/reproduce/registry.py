"""Which figures there are: what each has to run, and how its rows come from the runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.reproduce import fig04, fig08, fig19, fig21, fig22, fig23, workloads
from experiments.reproduce.figure import Figure
from experiments.reproduce.outcomes import Outcomes
from experiments.reproduce.set_ups import Case
from serving.errors import UserError


@dataclass(frozen=True, slots=True)
class Recipe:
    """cases: what to run, the same case in two figures once. make: the figure from the outcomes."""

    told: str
    cases: Callable[[], Sequence[Case]]
    make: Callable[[Outcomes], Figure]


BLITZSCALE: Final[dict[str, Recipe]] = {
    "fig4": Recipe("host-cache misses of ServerlessLLM, 16 models", fig04.cases, fig04.fig4),
    "fig8": Recipe("loading beside KV; a planner that ignores it", fig08.cases, fig08.fig8),
    "fig19": Recipe("copies of a model in host memory", fig19.cases, fig19.fig19),
    "fig21": Recipe("six 24B instances, two set-ups, three efficiencies", tuple, lambda _: fig21.fig21()),
    "fig22": Recipe("network use of scaling", fig22.cases, fig22.fig22),
    "fig23": Recipe("CPU time of plans and decisions", fig23.cases, fig23.fig23),
    "workloads": Recipe(
        "figures 17 and 18: three workloads, all systems", workloads.cases, workloads.compared
    ),
}
PAPERS: Final = {"blitzscale": BLITZSCALE}


def chosen(paper: str, names: Sequence[str]) -> dict[str, Recipe]:
    """The recipes of these figures (``all``: every one), each once; UserError for one there is not."""
    recipes = PAPERS[paper]
    if "all" in names:
        return recipes
    for name in names:
        if name not in recipes:
            raise UserError(
                f"servetwin reproduce {paper} has no figure {name!r}: write {' '.join(recipes)}, all or list"
            )
    return {name: recipes[name] for name in dict.fromkeys(names)}
