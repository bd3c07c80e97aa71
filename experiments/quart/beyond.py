"""Figures beyond the paper: QUART without its parts, sources of a stage's loads, a pipeline cut anew."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from experiments.common.compare import Seeds, judged_row
from experiments.common.figure import Figure, FigureRow, Key
from experiments.common.outcomes import (
    GPU_TIME,
    LOAD_TIME,
    LONGEST_LOAD,
    MEAN_TTFT,
    Metric,
    Outcomes,
    RunOutcome,
)
from experiments.common.paired import geometric_mean_of, mean_of
from experiments.common.panels import panels_of
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.verdict import below
from experiments.quart.judge import as_sweep, over_row, points_of
from experiments.quart.metrics import LATENCY, P99
from experiments.quart.set_ups import CVS, MODELS, ONCE, QUART, gamma, maf, system
from servetwin.report.number_text import number

# QUART with each of its parts switched off, under two workloads.

PARTS_KEY: Final[Key] = ("parts switched off", "parts")
PARTS: Final[dict[str, Words]] = {
    "smoother": ("system.stages.smoother=none",),
    "compensator": ("system.stages.compensator=false",),
    "keys": ("system.stages.keys=false",),
    "placement": ("system.stages.placement=false",),
    "PID": ("system.stages.corrector=rate",),
}
_PARTS_CV: Final = 4.0
_PARTS_METRICS: Final[dict[str, Metric]] = {"mean_ms": LATENCY, "p99_ms": P99}


def _parts_set_ups(requests: int) -> dict[str, list[SetUp]]:
    """Return workload -> the set-ups of every model."""
    return {
        "MAF": [maf(model, requests) for model in MODELS],
        f"CV {_PARTS_CV:g}": [gamma(model, _PARTS_CV, requests) for model in MODELS],
    }


def parts_cases(requests: int) -> list[Case]:
    """Return the cases with all parts, and without each; the five models take the place of seeds."""
    set_ups = [set_up for by_model in _parts_set_ups(requests).values() for set_up in by_model]
    return [_parts_case(part, set_up) for set_up in set_ups for part in ("", *PARTS)]


def _parts_case(part: str, set_up: SetUp) -> Case:
    """Return the case without ``part``, or with all parts if it is empty."""
    whole = replace(system(QUART, set_up), once=True)
    if not part:
        return whole
    return replace(whole, label=f"{QUART} without {part}", words=(*whole.words, *PARTS[part]))


def parts(outcomes: Outcomes) -> Figure:
    """Mean latency with all parts over that without one, model by model; P99 and all points in the sweep."""
    workloads = _parts_set_ups(outcomes.requests)
    rows = [
        _part_row(outcomes, workload, set_ups, part)
        for workload, set_ups in workloads.items()
        for part in PARTS
    ]
    numbers = tuple(
        point
        for workload, set_ups in workloads.items()
        for name, metric in _PARTS_METRICS.items()
        for part in ("", *PARTS)
        for point in points_of(
            outcomes,
            {name: metric},
            workload,
            [(part or QUART, x, _parts_case(part, set_up)) for x, set_up in enumerate(set_ups)],
        )
    )
    inputs = (
        "under the first seed; an interval is over the five models, in order: "
        + ", ".join(model.title for model in MODELS),
    )
    title = "QUART with each of its parts switched off"
    return Figure(
        "parts", title, tuple(rows), panels=panels_of(numbers, "model"), inputs=inputs,
        sweeps={PARTS_KEY: as_sweep("every part off, every model", numbers)}, numbers=numbers,
    )  # fmt: skip


def _part_row(outcomes: Outcomes, workload: str, set_ups: list[SetUp], part: str) -> FigureRow:
    cases = [_parts_case(name, set_up) for name in ("", part) for set_up in set_ups]

    def why(ratios: list[float]) -> str:
        latencies = [LATENCY.read(outcomes.of(case)[0]) or 0.0 for case in cases]
        means = [mean_of(half).value for half in (latencies[: len(set_ups)], latencies[len(set_ups) :])]
        by_model = ", ".join(
            f"{model.title} {number(ratio)}" for model, ratio in zip(MODELS, ratios, strict=True)
        )
        return f"{number(means[0])} against {number(means[1])} ms on average; {by_model}"

    name = f"{workload}: mean latency, quart over quart without {part}"
    claim = below(1.0, "shorter", "own_analysis")
    return judged_row(
        outcomes, name, claim, cases, _ratios_by_model, why=why, estimate=geometric_mean_of, key=PARTS_KEY
    )


def _ratios_by_model(runs: Sequence[Sequence[RunOutcome]]) -> Seeds:
    """Latencies of the first half of the cases over those of the second, under the first seed."""
    values = [LATENCY.of(part) for part in runs]
    known = [seeds[0] for seeds in values if seeds]
    if len(known) < len(values):
        return "a run lacks the number"
    half = len(known) // 2
    return [ours / without for ours, without in zip(known[:half], known[half:], strict=True)]


# A stage from disk, from a copy in host memory, from replicas that have it.

LOADS_KEY: Final[Key] = ("ways of a stage's parameters", "loads")
_DISK: Final = "disk"
_PEERS: Final = "system/provision=multicast"
_SOURCES: Final[dict[str, Words]] = {
    _DISK: ("system=quart", "system.stages.keys=false"),
    "copies": ("system=quart",),
    "peers": ("system=quart", "system.stages.keys=false", _PEERS),
    "copies and peers": ("system=quart", _PEERS),
}
_LOADS_METRICS: Final[dict[str, Metric]] = {
    "load_s": LOAD_TIME, "longest_load_s": LONGEST_LOAD, "mean_ms": LATENCY,
}  # fmt: skip


def loads_cases(requests: int) -> list[Case]:
    """BERT-21B at every CV, each way."""
    return [_loads_case(source, cv, requests) for cv in CVS for source in _SOURCES]


def _loads_case(source: str, cv: float, requests: int) -> Case:
    return Case(f"quart, {source}", gamma(MODELS[0], cv, requests), _SOURCES[source])


def loads(outcomes: Outcomes) -> Figure:
    """Times of loads and mean latency of each way over those from disk, at CV 4; all CVs in the sweep."""
    requests, claim = outcomes.requests, below(1.0, "shorter", "own_analysis")
    rows = [
        over_row(
            outcomes,
            f"{metric.label}, {source} over disk, CV 4",
            claim,
            metric,
            ours=_loads_case(source, 4.0, requests),
            other=_loads_case(_DISK, 4.0, requests),
            key=LOADS_KEY,
        )
        for metric in (LOAD_TIME, LATENCY)
        for source in _SOURCES
        if source != _DISK
    ]
    points = [(source, cv, _loads_case(source, cv, requests)) for cv in CVS for source in _SOURCES]
    numbers = points_of(outcomes, _LOADS_METRICS, "BERT-21B", points)
    inputs = (
        "stages of 5.25 GB: 5.5 s from one SSD, which all loads of a host share, and 0.8 s over PCIe; peers "
        "send over PCIe and NIC, in chains that BlitzScale's planner makes",
    )
    return Figure(
        "loads",
        "Beyond the paper: where a stage's replicas load from",
        tuple(rows),
        panels=panels_of(numbers, "CV"),
        inputs=inputs,
        sweeps={LOADS_KEY: as_sweep("every way at every CV", numbers)},
        numbers=numbers,
    )


# A language model that is cut anew while it runs, against cuts that stay.

RECUT_KEY: Final[Key] = ("number of stages", "recut")
_RECUT_CVS: Final = (0.5, 1.0, 4.0, 8.0)
_CALM: Final = 0.5
_BURSTY: Final = 8.0
TWO: Final = "2 stages"
EIGHT: Final = "8 stages"
RECUT: Final = "cut anew, 2 or 8"
_CUTS: Final[dict[str, Words]] = {
    TWO: ("pipeline.stages=2",),
    EIGHT: ("pipeline.stages=8",),
    RECUT: ("pipeline.stages=8", "pipeline.recut=cv"),
}
_RECUT_METRICS: Final[dict[str, Metric]] = {"ttft_ms": MEAN_TTFT, "gpu_seconds": GPU_TIME}


def recut_cases(requests: int) -> list[Case]:
    """OPT-13B at every CV, each cut."""
    return [_recut_case(cut, cv, requests) for cv in _RECUT_CVS for cut in _CUTS]


def _recut_case(cut: str, cv: float, requests: int) -> Case:
    engine = ("engine.max_num_seqs=16", "engine.max_new_tokens=2048")
    model = ("cluster=quart", "model=opt_13b", *engine, "pipeline.cut=layers", *ONCE)
    drawn = ("trace=gamma", f"trace.gap_cv={cv:g}", "trace.rate_per_s=3", "trace.tokens_scale=0.3")
    trace: Words = (*drawn, f"trace.requests={requests}")
    set_up = SetUp(f"OPT-13B, CV {cv:g}", model, trace, rate="written")
    return Case(f"quart, {cut}", set_up, ("system=quart", "pipeline.moves=true", *_CUTS[cut]))


def recut(outcomes: Outcomes) -> Figure:
    """In bursts the time to first token over that of few stages, else GPU time over that of many."""
    requests, claim = outcomes.requests, below(1.0, "less", "own_analysis")
    rows = tuple(
        over_row(
            outcomes,
            f"{metric.label}, cut anew over {other}, CV {cv:g}",
            claim,
            metric,
            ours=_recut_case(RECUT, cv, requests),
            other=_recut_case(other, cv, requests),
            key=RECUT_KEY,
        )
        for metric, cv, other in ((MEAN_TTFT, _BURSTY, TWO), (GPU_TIME, _CALM, EIGHT))
    )
    points = [(cut, cv, _recut_case(cut, cv, requests)) for cv in _RECUT_CVS for cut in _CUTS]
    numbers = points_of(outcomes, _RECUT_METRICS, "OPT-13B", points)
    inputs = (
        "a run begins with 8 stages, and has 2 after 30 s in which arrivals had a CV below 1.5, 8 from a CV "
        "of 2 on; the KV of requests that decode moves",
    )
    return Figure(
        "recut",
        "Beyond the paper: a pipeline that is cut anew while it runs",
        rows,
        panels=panels_of(numbers, "CV"),
        inputs=inputs,
        sweeps={RECUT_KEY: as_sweep("every way at every CV", numbers)},
        numbers=numbers,
    )
