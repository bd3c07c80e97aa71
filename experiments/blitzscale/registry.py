"""Which figures of BlitzScale there are."""

from collections.abc import Callable, Sequence
from typing import Final

from experiments.blitzscale import (
    fig01,
    fig03,
    fig04,
    fig08,
    fig15,
    fig17,
    fig18,
    fig19,
    fig20,
    fig21,
    fig22,
    fig23,
    fig24,
    live,
    v1,
    zigzag,
)
from experiments.blitzscale.sweeps import all_sweeps
from experiments.common.figure import Figure
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Paper, Recipe
from experiments.common.set_up import Case
from experiments.common.sweep import SetUpSweep


def _recipe(about: str, cases: Callable[[], Sequence[Case]], make: Callable[[Outcomes], Figure]) -> Recipe:
    """Return the recipe of runs whose numbers of requests follow from the windows of their traces."""
    return Recipe(about, lambda _: cases(), make)


BLITZSCALE: Final[dict[str, Recipe]] = {
    "fig1": _recipe("demand over time: arrivals and KV", fig01.cases, fig01.fig1),
    "fig3": _recipe("objectives by stop time; network use of serving", fig03.cases, fig03.fig3),
    "fig4": _recipe("host-cache misses of ServerlessLLM, 16 models", fig04.cases, fig04.fig4),
    "fig8": _recipe("loading beside KV; a planner that ignores it", fig08.cases, fig08.fig8),
    "fig15": _recipe("ZigZag's example, exact", fig15.cases, lambda _: fig15.fig15()),
    "fig17": _recipe("three workloads, every system", fig17.cases, fig17.fig17),
    "fig18": _recipe("GPU time and objectives, AzureConv with 24B", fig18.cases, fig18.fig18),
    "fig19": _recipe("copies of a model in host memory", fig19.cases, fig19.fig19),
    "fig20": _recipe("ablation from two bases", fig20.cases, fig20.fig20),
    "fig21": _recipe("six 24B instances, two set-ups, three efficiencies", tuple, lambda _: fig21.fig21()),
    "fig22": _recipe("network use of scaling", fig22.cases, fig22.fig22),
    "fig23": _recipe("CPU time of plans and decisions", fig23.cases, fig23.fig23),
    "fig24": _recipe("prefill and decode on the same instances", fig24.cases, fig24.fig24),
    "live": _recipe("live scaling on and off, its schedulers and counters", live.cases, live.live),
    "zigzag": _recipe("ZigZag against best effort: one pair's bound, settings", zigzag.cases, zigzag.zigzag),
    "v1": _recipe("headlines of the first version", v1.cases, v1.v1),
}


def sweeps_of(cases: Sequence[Case]) -> tuple[SetUpSweep, ...]:
    """The sweeps of those set-ups that the cases compare: where at least two systems of one are run."""
    subjects = [case.set_up.name for case in dict.fromkeys(cases)]
    return tuple(sweep for sweep in all_sweeps() if subjects.count(sweep.subject) > 1)


def paper() -> Paper:
    """BlitzScale."""
    return Paper(name="blitzscale", recipes=BLITZSCALE, sweeps=sweeps_of, run_cpu_s=1.7, requests=False)
