"""Figures 2 and 3: what becomes of burstiness along five stages, where requests queue, what cores bring."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from experiments.common.compare import judged_row, ratios_of, values_of
from experiments.common.figure import Figure, FigureRow, Key, MeasuredPoint
from experiments.common.outcomes import Metric, Outcomes, RunOutcome
from experiments.common.paired import geometric_mean_of
from experiments.common.panels import panels_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, at_least, shorter, times
from experiments.quart.judge import as_sweep
from experiments.quart.metrics import P50, of_stages
from experiments.quart.set_ups import five_stages

LOAD: Final = 0.7
TIMES_CV: Final = 0.2
LOADS: Final = (0.5, 0.7, 0.9)
TIMES_CVS: Final = (0.05, 0.2, 0.5, 1.0)
KEY_2: Final[Key] = ("load and CV of times", "Figure 2")
KEY_3: Final[Key] = ("stages and cores", "Figure 3")
CORES: Final = (2, 4, 8)
_INPUTS: Final = (
    "BERT-21B in five stages of equal bytes on five GPUs, one replica each, which stay as they are",
    f"the paper tells no rate: the slowest stage is busy {LOAD:.0%} of the time; pass times are drawn with a "
    f"CV of {TIMES_CV:g}",
)


def plain(cv: float, requests: int) -> Case:
    """At the load and times of the figure."""
    return five_stages(cv, LOAD, TIMES_CV, requests)


def cases_2(requests: int) -> list[Case]:
    """CV 1 and 0.1, and every load and CV of times at both."""
    return [
        five_stages(cv, load, times_cv, requests)
        for cv in (1.0, 0.1)
        for load in LOADS
        for times_cv in TIMES_CVS
    ]


def fig2(outcomes: Outcomes) -> Figure:
    """How far CVs and queues of the stages differ, and which way the CV goes."""
    requests = outcomes.requests
    calm, poisson = plain(0.1, requests), plain(1.0, requests)
    rows = [
        _spread(outcomes, "Figure 2a, CV 1: largest over smallest CV of a stage", 3.5, poisson, "arrival_cv"),
        _spread(outcomes, "Figure 2b, CV 0.1: longest over shortest queue", 3.0, calm, "queue_mean"),
        _row(
            outcomes,
            "CV 0.1: CV at the last stage over that at the first",
            Claim("rises, 0.03 to 0.25", 0.25 / 0.03, 0.25 / 0.03, against=1.0, kind="paper_number"),
            calm,
            lambda run: of_stages(run, "arrival_cv")[-1] / of_stages(run, "arrival_cv")[0],
        ),
    ]
    numbers = [
        MeasuredPoint(
            case.set_up.name, key, "pipeline", stage, tuple(of_stages(run, key)[stage] for run in runs)
        )
        for case in cases_2(requests)
        if (runs := outcomes.of(case))
        for key in ("arrival_cv", "queue_mean")
        for stage in range(5)
    ]
    drawn = [point for point in numbers if point.panel in (calm.set_up.name, poisson.set_up.name)]
    inputs = (*_INPUTS, f"sweeps.json: loads {LOADS} by CVs of pass times {TIMES_CVS}")
    return Figure(
        "fig2", "Figure 2: burstiness along the stages", tuple(rows),
        panels=panels_of(drawn, "stage"), inputs=inputs, sweeps={KEY_2: as_sweep("by stage", numbers)},
        numbers=tuple(numbers),
    )  # fmt: skip


def cases_3(requests: int) -> list[Case]:
    """CV 4 for the use of GPUs; hardly any load for what cores bring."""
    return [plain(4.0, requests), *[_with_cores(cores, requests) for cores in CORES]]


def _with_cores(cores: int, requests: int) -> Case:
    return five_stages(1.0, 0.05, TIMES_CV, requests, (f"pipeline.cpu_cores={cores}",))


def fig3(outcomes: Outcomes) -> Figure:
    """Use of the stages' GPUs, and the median latency by CPU cores."""
    requests = outcomes.requests
    busy = plain(4.0, requests)
    two, four = _with_cores(2, requests), _with_cores(4, requests)
    rows = [
        _row(
            outcomes,
            "Figure 3a, CV 4: largest over smallest use of a stage's GPU",
            at_least(1.1, "do not conform (read as by a tenth)", "paper_direction"),
            busy,
            lambda run: _ratio_of_ends(of_stages(run, "busy_replicas")),
            key=KEY_3,
        ),
        _cores_row(outcomes, two, four),
    ]
    numbers = [
        *[
            MeasuredPoint(
                "use of GPUs",
                "busy",
                "pipeline",
                stage,
                tuple(of_stages(run, "busy_replicas")[stage] for run in outcomes.of(busy)),
            )
            for stage in range(5)
            if outcomes.of(busy)
        ],
        *[
            MeasuredPoint("median latency by cores", "p50_ms", "pipeline", cores, tuple(values))
            for cores in CORES
            if (values := P50.of(outcomes.of(_with_cores(cores, requests))))
        ],
    ]
    inputs = (
        *_INPUTS,
        "what cores bring is put in from this figure (pipeline.cpu_share), so 3b shows no more than that it "
        "comes out again",
    )
    return Figure(
        "fig3", "Figure 3: use of GPUs, and cores", tuple(rows),
        panels=panels_of(numbers, "stage, or cores"), inputs=inputs,
        sweeps={KEY_3: as_sweep("by stage, by cores", numbers)}, numbers=tuple(numbers),
    )  # fmt: skip


def _spread(outcomes: Outcomes, name: str, factor: float, case: Case, key: str) -> FigureRow:
    return _row(outcomes, name, times(factor), case, lambda run: _ratio_of_ends(of_stages(run, key)))


def _ratio_of_ends(values: Sequence[float]) -> float:
    return max(values) / max(min(values), 1e-9)


def _row(
    outcomes: Outcomes,
    name: str,
    claim: Claim,
    case: Case,
    read: Callable[[RunOutcome], float],
    *,
    key: Key = KEY_2,
) -> FigureRow:
    def why(_: list[float]) -> str:
        cvs = zip(*[of_stages(run, "arrival_cv") for run in outcomes.of(case)], strict=True)
        return f"CVs of the stages {', '.join(f'{fmean(seeds):.3g}' for seeds in cvs)}"

    metric = Metric(name, "", "stages", read)
    return judged_row(outcomes, name, claim, (case,), values_of(metric), why=why, key=key)


def _cores_row(outcomes: Outcomes, two: Case, four: Case) -> FigureRow:
    name, claim = "Figure 3b: median latency with 4 cores over 2", shorter(33)
    return judged_row(
        outcomes, name, claim, (four, two), ratios_of(P50), estimate=geometric_mean_of, key=KEY_3
    )
