"""Which figures of QUART there are."""

from typing import Final

from experiments.common.recipe import Paper, Recipe
from experiments.quart import beyond, fig02, readings, systems_figures
from experiments.quart.sweeps import sweeps_of

QUART: Final[dict[str, Recipe]] = {
    "fig2": Recipe("CV and queue along five stages", fig02.cases_2, fig02.fig2),
    "fig3": Recipe("use of GPUs along five stages; cores", fig02.cases_3, fig02.fig3),
    "fig6": Recipe(
        "four systems, Azure Functions, five models", systems_figures.cases_6, systems_figures.fig6
    ),
    "fig7": Recipe("four systems, five CVs, five models", systems_figures.cases_7, systems_figures.fig7),
    "fig8": Recipe("quantiles and queues of the same runs", systems_figures.cases_7, systems_figures.fig8),
    "readings6": Recipe("Figure 6 by other readings of the paper", readings.maf_cases, readings.readings_6),
    "readings7": Recipe(
        "Figures 7 and 8 by other readings of the paper", readings.cv_cases, readings.readings_7
    ),
    "parts": Recipe("QUART without each of its parts", beyond.parts_cases, beyond.parts),
    "loads": Recipe("a stage from disk, host copies, peers", beyond.loads_cases, beyond.loads),
    "recut": Recipe("a running pipeline cut anew by the CV of arrivals", beyond.recut_cases, beyond.recut),
}


def paper() -> Paper:
    """QUART."""
    return Paper(name="quart", recipes=QUART, sweeps=sweeps_of, run_cpu_s=8.1)
