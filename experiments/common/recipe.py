"""A paper's figures: which cases each of them runs, and how it is made from their outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.set_up import Case
from experiments.common.sweep import SetUpSweep
from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class Recipe:
    """A figure: ``about`` it in a few words, the cases to run, and the figure made from their outcomes.

    cases: with so many requests a run, where the paper's runs all have as many.
    A case of two figures runs once.
    """

    about: str
    cases: Callable[[int], Sequence[Case]]
    make: Callable[[Outcomes], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper's figures by name, and the sweeps that belong to some cases.

    requests: whether the length of a run may be chosen. run_cpu_s: CPU seconds of a run, its preparation
    included, without native code and with 10,000 requests where their number may be chosen: the mean of 14
    runs drawn from those of all figures and sweeps. It weighs the papers against each other until a run of
    the paper is kept, whose own time is known; no minutes are told by it.
    """

    name: str
    recipes: Mapping[str, Recipe]
    sweeps: Callable[[Sequence[Case]], tuple[SetUpSweep, ...]]
    run_cpu_s: float
    requests: bool = True


def no_cases(_: int) -> Sequence[Case]:
    """Return no cases: the recipe's figure is made without runs."""
    return ()


def chosen(paper: str, recipes: Mapping[str, Recipe], names: Sequence[str]) -> Mapping[str, Recipe]:
    """The recipes of these figures (``all``: every one), each once; UserError for one there is not."""
    if "all" in names:
        return recipes
    for name in names:
        if name not in recipes:
            raise UserError(
                f"servetwin reproduce {paper} has no figure {name!r}: write {' '.join(recipes)}, all or list"
            )
    return {name: recipes[name] for name in dict.fromkeys(names)}
