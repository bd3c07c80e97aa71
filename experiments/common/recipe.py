"""A figure's recipe: what it has to run, and how its rows come from the runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.set_up import Case
from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class Recipe:
    """cases: what to run, the same case in two figures once. make: the figure from the outcomes."""

    told: str
    cases: Callable[[], Sequence[Case]]
    make: Callable[[Outcomes], Figure]


def chosen(paper: str, recipes: dict[str, Recipe], names: Sequence[str]) -> dict[str, Recipe]:
    """The recipes of these figures (``all``: every one), each once; UserError for one there is not."""
    if "all" in names:
        return recipes
    for name in names:
        if name not in recipes:
            raise UserError(
                f"servetwin reproduce {paper} has no figure {name!r}: write {' '.join(recipes)}, all or list"
            )
    return {name: recipes[name] for name in dict.fromkeys(names)}
