"""What QUART's results hang on beside the systems: the rate, the length of a run, the replicas at the start,
whether InferLine is told the mean rate that it plans for, and whether QUART's formula counts what queues.

The paper tells none of them. No point chooses a number: figures are made of the set-ups as they stand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from experiments.common.set_up import Case, SetUp, Words
from experiments.common.sweep import Sweep
from experiments.quart.set_ups import GAMMA_LOAD, MAF_LOAD, MODELS, QUART, SYSTEMS, Model

CV: Final = 4  # of the Gamma arrivals that are swept
LOADS: Final = (1.0, 2.0, 6.0)
MAF_LOADS: Final = (1.0, 3.0)
STARTS: Final = (2, 4)
LONGER: Final = 4
UNTOLD: Final[Words] = ("system.stages.planned_per_s=0",)
UNCOUNTED: Final[Words] = ("system.stages.drain_s=1e9",)  # longer than any run


def sweeps_of(cases: Sequence[Case]) -> tuple[Sweep, ...]:
    """Of every model that several systems serve at this CV or under Azure Functions, the first seed."""
    by_set_up: dict[SetUp, list[Case]] = {}
    for one in dict.fromkeys(cases):
        of_a_figure = one.label in SYSTEMS and not one.once
        if of_a_figure and one.set_up.name.endswith((f", CV {CV}", ", MAF")):
            by_set_up.setdefault(one.set_up, []).append(one)
    return tuple(sweep for set_up, there in by_set_up.items() for sweep in _of(set_up, there))


def _of(set_up: SetUp, systems: Sequence[Case]) -> Iterator[Sweep]:
    (model,) = [one for one in MODELS if set_up.name.startswith(one.title)]
    bursts = set_up.name.endswith(", MAF")
    loads = {f"{load:g} busy": _rate(model, load) for load in (MAF_LOADS if bursts else LOADS)}
    told = f"replicas of every stage that the mean rate keeps busy; the set-up's is {_load(bursts):g}"
    yield _sweep("mean load", set_up, told, systems, loads)
    starts = {f"{count} replicas": (f"pipeline.replicas={count}",) for count in STARTS}
    yield _sweep("start", set_up, "replicas of every stage at the start; the set-up's is 1", systems, starts)
    told = "the rate that InferLine plans for; the set-up's is the mean rate, which nobody else is told"
    yield _of_one("plan", set_up, told, systems, "inferline", ("that of the first second", UNTOLD))
    if not bursts:
        told = (
            "what the formula of QUART's corrector takes for arrivals; the set-up's has what queues with them"
        )
        yield _of_one("queue", set_up, told, systems, QUART, ("arrivals alone", UNCOUNTED))
        (count,) = [
            int(word.partition("=")[2]) for word in set_up.trace if word.startswith("trace.requests=")
        ]
        longer = {f"{LONGER} times": (f"trace.requests={LONGER * count}",)}
        yield _sweep("length", set_up, "requests of a run, over the set-up's", systems, longer)


def _of_one(
    kind: str, set_up: SetUp, told: str, systems: Sequence[Case], label: str, point: tuple[str, Words]
) -> Sweep:
    """One system is changed; the others have the runs of the set-up."""
    value, words = point
    cases = [
        replace(one, words=(*one.words, *words), once=True) if one.label == label else one for one in systems
    ]
    return Sweep(kind, set_up.name, told, ((value, tuple(cases)),))


def _load(bursts: bool) -> float:
    return MAF_LOAD if bursts else GAMMA_LOAD


def _rate(model: Model, load: float) -> Words:
    return (f"trace.rate_per_s={model.rate_per_s(load):.6g}",)


def _sweep(
    kind: str, set_up: SetUp, told: str, systems: Sequence[Case], values: Mapping[str, Words]
) -> Sweep:
    points = [
        (value, tuple([replace(one, words=(*one.words, *words), once=True) for one in systems]))
        for value, words in values.items()
    ]
    return Sweep(kind, set_up.name, told, tuple(points))
