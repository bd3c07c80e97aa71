"""Beyond the paper: a stage from disk, from a copy in host memory, from replicas that have it."""

from typing import Final

from experiments.common.compare import pointed
from experiments.common.figure import Figure, Key, Measured, Row
from experiments.common.outcomes import LOAD_TIME, LONGEST_LOAD, Metric, Outcomes
from experiments.common.paired import ratio_of
from experiments.common.set_up import Case, Words
from experiments.common.verdict import below, judged_over
from experiments.llumnix.draw import panels_of
from experiments.quart.judge import as_sweep
from experiments.quart.metrics import LATENCY
from experiments.quart.set_ups import CVS, MODELS, gamma

KEY: Final[Key] = ("ways of a stage's parameters", "loads")
DISK: Final = "disk"
PEERS: Final = "system/provision=multicast"
WAYS: Final[dict[str, Words]] = {
    DISK: ("system=quart", "system.stages.keys=false"),
    "copies": ("system=quart",),
    "peers": ("system=quart", "system.stages.keys=false", PEERS),
    "copies and peers": ("system=quart", PEERS),
}
_METRICS: Final[dict[str, Metric]] = {
    "load_s": LOAD_TIME, "longest_load_s": LONGEST_LOAD, "mean_ms": LATENCY,
}  # fmt: skip


def cases(requests: int) -> list[Case]:
    """BERT-21B at every CV, each way."""
    return [_case(way, cv, requests) for cv in CVS for way in WAYS]


def _case(way: str, cv: float, requests: int) -> Case:
    return Case(f"quart, {way}", gamma(MODELS[0], cv, requests), WAYS[way])


def made(outcomes: Outcomes, requests: int) -> Figure:
    """Times of loads and mean latency of each way over those from disk, at CV 4; all CVs in the sweep."""
    rows = [
        _row(outcomes, f"{metric.label}, {way} over disk, CV 4", metric, way, requests)
        for metric in (LOAD_TIME, LATENCY)
        for way in WAYS
        if way != DISK
    ]
    numbers = tuple(
        Measured("BERT-21B", name, way, cv, tuple(values))
        for name, metric in _METRICS.items()
        for cv in CVS
        for way in WAYS
        if (values := metric.of(outcomes.of(_case(way, cv, requests))))
    )
    inputs = (
        "stages of 5.25 GB: 5.5 s from one SSD, which all loads of a host share, and 0.8 s over PCIe; peers "
        "send over PCIe and NIC, in chains that BlitzScale's planner makes",
    )
    return Figure(
        "loads", "Beyond the paper: where a stage's replicas load from", tuple(rows),
        panels_of(numbers, "CV"), inputs, sweeps={KEY: as_sweep("every way at every CV", numbers)},
        numbers=numbers,
    )  # fmt: skip


def _row(outcomes: Outcomes, name: str, metric: Metric, way: str, requests: int) -> Row:
    claim = below(1.0, "shorter", "own_analysis")
    one, disk = _case(way, 4.0, requests), _case(DISK, 4.0, requests)
    ours, theirs = metric.of(outcomes.of(one)), metric.of(outcomes.of(disk))
    found = None if ours is None or theirs is None else ratio_of(ours, theirs)
    if ours is None or theirs is None or found is None:
        return claim.not_comparable(name, "", outcomes.why_not(one, disk) or "a run lacks the number")
    sizes = f"{sum(ours) / len(ours):.3g} against {sum(theirs) / len(theirs):.3g} {metric.unit}"
    return pointed(judged_over(name, claim, found, "", sizes), KEY)
