"""The figures: what requests and GPUs get in every cell, and how the links are used. No row has a claim."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from experiments.common.figure import Figure, MeasuredPoint
from experiments.common.outcomes import Metric, Outcomes
from experiments.common.paired import mean_of
from experiments.common.panels import panels_of
from experiments.scale.cells import (
    CLUSTERS,
    DURATION_S,
    MODELS,
    ONE_SEED_FROM,
    PER_GPU_S,
    SYSTEMS,
    case_of,
)
from experiments.scale.metrics import BESIDE, BUSIEST, COLUMNS, LINKS, SERVED
from servetwin.report.number_text import number

_INPUTS: Final = (
    f"copies of Llama-3-8B, Zipf 0.9, five-fold bursts of each; {PER_GPU_S:g} requests/s and GPU, "
    f"{DURATION_S} s of arrivals with the lengths of azure_conv_like; a cell's requests stand in its row",
    "hosts of eight A800 (blitz_a) and one engine in every system; blitzscale and serverlessllm begin "
    "without an instance, so the first requests of every model wait for a load",
    "llumnix and static begin with instances of every model on all GPUs; llumnix (auto-scaled in its band, "
    "as shipped) then gives up or adds instances of a model every 10 s, static keeps them",
    f"the mean over the seeds; from {ONE_SEED_FROM:,} GPUs on the first seed alone",
)
_SERVED: Final = (
    "time to capacity: from the decision to load an instance of a model until all that it loads by then "
    "serve; a model without an instance waits from its first look that finds no GPU",
)
_SHARE: Final = "bytes carried over what could be carried until the last request is answered"
_USED: Final = "a static system uses no links; 0 is not drawn"


def served(outcomes: Outcomes) -> Figure:
    """Objectives, GPU-hours and time to capacity by GPUs, a column for each number of models."""
    title = "Elastic systems by GPUs and models: requests, GPUs held, time to capacity"
    log_y = set(SERVED) - {"within objectives"}
    figure = _figure(outcomes, "served", title, SERVED, log_y=log_y, inputs=_SERVED)
    beside = _numbers(outcomes, BESIDE)
    return replace(figure, numbers=(*figure.numbers, *beside), levels=_levels(outcomes))


def links(outcomes: Outcomes) -> Figure:
    """Use of all links of a kind by GPUs."""
    title = "Elastic systems by GPUs and models: mean use of links"
    return _figure(outcomes, "links", title, LINKS, log_y=set(LINKS), inputs=(_SHARE, _USED))


def busiest(outcomes: Outcomes) -> Figure:
    """Use of the busiest link of a kind by GPUs."""
    title = "Elastic systems by GPUs and models: use of the busiest link"
    return _figure(outcomes, "busiest", title, BUSIEST, log_y=set(BUSIEST), inputs=(_SHARE, _USED))


def _figure(
    outcomes: Outcomes,
    name: str,
    title: str,
    metrics: Mapping[str, Metric],
    *,
    log_y: Collection[str],
    inputs: tuple[str, ...],
) -> Figure:
    numbers = _numbers(outcomes, metrics)
    return Figure(
        name,
        title,
        (),
        panels=panels_of(numbers, "GPUs", log_x=True, log_y=log_y),
        inputs=(*_INPUTS, *inputs, *_not_shown(outcomes)),
        numbers=numbers,
        columns=len(MODELS),
        share_y=True,
    )


def _numbers(outcomes: Outcomes, metrics: Mapping[str, Metric]) -> tuple[MeasuredPoint, ...]:
    """Every metric of every cell that ran; a row of panels is a metric."""
    return tuple(
        MeasuredPoint(f"{models:,} models", name, system, gpus, tuple(values))
        for name, metric in metrics.items()
        for models in MODELS
        for system in SYSTEMS
        for gpus in CLUSTERS
        if (values := metric.of(outcomes.of(case_of(gpus, models, system))))
    )


def _levels(outcomes: Outcomes) -> tuple[Mapping[str, str], ...]:
    """A table for each number of models, a line for each system in each cell that ran."""
    lines = []
    for models in MODELS:
        for gpus in CLUSTERS:
            for system in SYSTEMS:
                if runs := outcomes.of(case_of(gpus, models, system)):
                    cells = {title: metric.of(runs) for title, metric in COLUMNS.items()}
                    shown = {
                        name: number(mean_of(seeds).value) if seeds else "" for name, seeds in cells.items()
                    }
                    lines.append(
                        {"models": f"{models:,} models", "GPUs": f"{gpus:,}", "system": system, **shown}
                    )
    return tuple(lines)


def _not_shown(outcomes: Outcomes) -> tuple[str, ...]:
    """Return a sentence for each system that cannot run in some cells."""
    cells: dict[str, list[str]] = {}
    for case in outcomes.missing:
        cells.setdefault(case.label, []).append(case.set_up.name)
    return tuple(
        f"{system} is not shown where models outnumber GPUs, which it cannot host: {'; '.join(sorted(names))}"
        for system, names in cells.items()
    )
