"""Which figures of QUART there are."""

from collections.abc import Callable, Sequence
from functools import partial

from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Recipe
from experiments.common.set_up import Case
from experiments.quart import fig02, loads_figure, parts_figure, recut_figure, systems_figures

FIGURES: dict[str, tuple[str, Callable[[int], Sequence[Case]], Callable[[Outcomes, int], Figure]]] = {
    "fig2": ("CV and queue along five stages", fig02.cases_2, fig02.fig2),
    "fig3": ("use of GPUs along five stages; cores", fig02.cases_3, fig02.fig3),
    "fig6": ("four systems, Azure Functions, five models", systems_figures.cases_6, systems_figures.fig6),
    "fig7": ("four systems, five CVs, five models", systems_figures.cases_7, systems_figures.fig7),
    "fig8": ("quantiles and queues of the same runs", systems_figures.cases_7, systems_figures.fig8),
    "parts": ("QUART without each of its parts", parts_figure.cases, parts_figure.made),
    "loads": ("a stage from disk, host copies, peers", loads_figure.cases, loads_figure.made),
    "recut": ("a running pipeline cut anew by the CV of arrivals", recut_figure.cases, recut_figure.made),
}


def recipes(requests: int) -> dict[str, Recipe]:
    """With so many requests a run."""
    return {
        name: Recipe(told, partial(cases, requests), partial(_made, make, requests))
        for name, (told, cases, make) in FIGURES.items()
    }


def _made(make: Callable[[Outcomes, int], Figure], requests: int, outcomes: Outcomes) -> Figure:
    return make(outcomes, requests)
