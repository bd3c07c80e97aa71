"""Which figures of Llumnix there are."""

from collections.abc import Callable, Sequence
from functools import partial

from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Recipe
from experiments.common.set_up import Case
from experiments.llumnix import (
    defragment,
    fig03,
    fig04,
    fig05,
    fig10,
    fig11,
    fig13,
    fig14,
    fig15,
    fig16,
    into_loading,
    notice,
    vacate,
    victims,
)
from experiments.llumnix.judge import Judge
from experiments.llumnix.points import Points

_Cases = Callable[[int], Sequence[Case]]


def _none(_: int) -> Sequence[Case]:
    return ()


FIGURES: dict[str, tuple[str, _Cases, Callable[[Judge], Figure]]] = {
    "fig3": ("preemptions of one instance and what they cost", fig03.cases, fig03.fig3),
    "fig4": ("decode step by batch, two models", _none, fig04.fig4),
    "fig5": ("memory that is free in all while requests wait", fig05.cases, fig05.fig5),
    "fig10": ("down time of a migration, two models", fig10.cases, fig10.fig10),
    "fig11": ("seven workloads at all their rates", fig11.cases, fig11.fig11),
    "fig13": ("a tenth of the requests has a high priority", fig13.cases, fig13.fig13),
    "fig14": ("auto-scaling in a band of freeness, rates and bursts", fig14.cases, fig14.fig14),
    "fig15": ("auto-scaling, the band's lower bound", fig15.cases, fig15.fig15),
    "defragment": ("room on decode instances", defragment.cases, defragment.defragment),
    "into_loading": ("instances that still load", into_loading.cases, into_loading.into_loading),
    "notice": ("requests lost with a host, by notice", notice.cases, notice.notice),
    "vacate": ("GPUs that other models wait for", vacate.cases, vacate.vacate),
    "victims": ("victims of preemption go to a neighbour", victims.cases, victims.victims),
    "fig16": ("cost of a scheduling decision", _none, fig16.fig16),
}


def recipes(requests: int, points: Points) -> dict[str, Recipe]:
    """With so many requests a run; points: of the paper's figures."""
    return {
        name: Recipe(told, partial(cases, requests), partial(_made, make, points, requests))
        for name, (told, cases, make) in FIGURES.items()
    }


def _made(make: Callable[[Judge], Figure], points: Points, requests: int, outcomes: Outcomes) -> Figure:
    return make(Judge(outcomes, points, requests))
