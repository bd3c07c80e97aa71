"""Which figures of Llumnix there are."""

from collections.abc import Callable, Sequence
from functools import partial

from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Paper, Recipe, no_cases
from experiments.common.set_up import Case
from experiments.llumnix import beyond, fig03, fig04, fig05, fig10, fig11, fig13, fig14, fig15, fig16
from experiments.llumnix.judge import PointJudge, cases_of
from experiments.llumnix.points import Points, read_points
from experiments.llumnix.sweeps import sweeps_of

_Cases = Callable[[int], Sequence[Case]]

FIGURES: dict[str, tuple[str, _Cases, Callable[[PointJudge], Figure]]] = {
    "fig3": ("preemptions of one instance and what they cost", fig03.cases, fig03.fig3),
    "fig4": ("decode step by batch, two models", no_cases, fig04.fig4),
    "fig5": ("memory that is free in all while requests wait", fig05.cases, fig05.fig5),
    "fig10": ("down time of a migration, two models", fig10.cases, fig10.fig10),
    "fig11": ("seven workloads at all their rates", cases_of(fig11.curves), fig11.fig11),
    "fig13": ("a tenth of the requests has a high priority", cases_of(fig13.curves), fig13.fig13),
    "fig14": ("auto-scaling in a band of freeness, rates and bursts", cases_of(fig14.curves), fig14.fig14),
    "fig15": ("auto-scaling, the band's lower bound", cases_of(fig15.curves), fig15.fig15),
    "defragment": ("room on decode instances", cases_of(beyond.defragment_curves), beyond.defragment),
    "into_loading": ("instances that still load", cases_of(beyond.into_loading_curves), beyond.into_loading),
    "notice": ("requests lost with a host, by notice", cases_of(beyond.notice_curves), beyond.notice),
    "vacate": ("GPUs that other models wait for", cases_of(beyond.vacate_curves), beyond.vacate),
    "victims": ("victims of preemption go to a neighbour", cases_of(beyond.victims_curves), beyond.victims),
    "fig16": ("cost of a scheduling decision", no_cases, fig16.fig16),
}


def recipes(points: Points) -> dict[str, Recipe]:
    """The figures beside these points of the paper."""
    return {
        name: Recipe(about, cases, partial(_make, make, points))
        for name, (about, cases, make) in FIGURES.items()
    }


def paper() -> Paper:
    """Llumnix. Raises UserError when its points cannot be read."""
    return Paper(name="llumnix", recipes=recipes(read_points()), sweeps=sweeps_of, run_cpu_s=1.4)


def _make(make: Callable[[PointJudge], Figure], points: Points, outcomes: Outcomes) -> Figure:
    return make(PointJudge(outcomes, points))
