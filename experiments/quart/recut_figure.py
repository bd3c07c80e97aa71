"""Beyond the paper: a language model that is cut anew while it runs, against cuts that stay."""

from typing import Final

from experiments.common.compare import pointed
from experiments.common.figure import Figure, Key, Measured, Row
from experiments.common.outcomes import GPU_TIME, MEAN_TTFT, Metric, Outcomes
from experiments.common.paired import ratio_of
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.verdict import below, judged_over
from experiments.llumnix.draw import panels_of
from experiments.quart.judge import as_sweep
from experiments.quart.set_ups import ONCE

KEY: Final[Key] = ("number of stages", "recut")
CVS: Final = (0.5, 1.0, 4.0, 8.0)
CALM: Final = 0.5
BURSTY: Final = 8.0
FEW: Final = "2 stages"
MANY: Final = "8 stages"
ANEW: Final = "cut anew, 2 or 8"
WAYS: Final[dict[str, Words]] = {
    FEW: ("pipeline.stages=2",),
    MANY: ("pipeline.stages=8",),
    ANEW: ("pipeline.stages=8", "pipeline.recut=cv"),
}
_METRICS: Final[dict[str, Metric]] = {"ttft_ms": MEAN_TTFT, "gpu_seconds": GPU_TIME}


def cases(requests: int) -> list[Case]:
    """OPT-13B at every CV, each way."""
    return [_case(way, cv, requests) for cv in CVS for way in WAYS]


def _case(way: str, cv: float, requests: int) -> Case:
    engine = ("engine.max_num_seqs=16", "engine.max_new_tokens=2048")
    model = ("cluster=quart", "model=opt_13b", *engine, "pipeline.cut=layers", *ONCE)
    drawn = ("trace=gamma", f"trace.gap_cv={cv:g}", "trace.rate_per_s=3", "trace.tokens_scale=0.3")
    trace: Words = (*drawn, f"trace.requests={requests}")
    set_up = SetUp(f"OPT-13B, CV {cv:g}", model, trace, rate="written")
    return Case(f"quart, {way}", set_up, ("system=quart", "pipeline.moves=true", *WAYS[way]))


def made(outcomes: Outcomes, requests: int) -> Figure:
    """In bursts the time to first token over that of few stages, else GPU time over that of many."""
    rows = (
        _row(outcomes, MEAN_TTFT, BURSTY, FEW, requests),
        _row(outcomes, GPU_TIME, CALM, MANY, requests),
    )
    numbers = tuple(
        Measured("OPT-13B", name, way, cv, tuple(values))
        for name, metric in _METRICS.items()
        for cv in CVS
        for way in WAYS
        if (values := metric.of(outcomes.of(_case(way, cv, requests))))
    )
    inputs = (
        "a run begins with 8 stages, and has 2 after 30 s in which arrivals had a CV below 1.5, 8 from a CV "
        "of 2 on; the KV of requests that decode moves",
    )
    return Figure(
        "recut", "Beyond the paper: a pipeline that is cut anew while it runs", rows,
        panels_of(numbers, "CV"), inputs, sweeps={KEY: as_sweep("every way at every CV", numbers)},
        numbers=numbers,
    )  # fmt: skip


def _row(outcomes: Outcomes, metric: Metric, cv: float, other: str, requests: int) -> Row:
    claim = below(1.0, "less", "own_analysis")
    name = f"{metric.label}, cut anew over {other}, CV {cv:g}"
    one, whole = _case(ANEW, cv, requests), _case(other, cv, requests)
    ours, theirs = metric.of(outcomes.of(one)), metric.of(outcomes.of(whole))
    found = None if ours is None or theirs is None else ratio_of(ours, theirs)
    if ours is None or theirs is None or found is None:
        return claim.not_comparable(name, "", outcomes.why_not(one, whole) or "a run lacks the number")
    sizes = f"{sum(ours) / len(ours):.3g} against {sum(theirs) / len(theirs):.3g} {metric.unit}"
    return pointed(judged_over(name, claim, found, "", sizes), KEY)
