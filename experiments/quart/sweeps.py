"""Sweeps of QUART's set-ups: mean load, length of a run, replicas at the start, the rate that InferLine plans
for, and whether QUART's formula counts queued requests.

The paper states none of these values. No sweep chooses one: figures use the set-ups as they stand.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from experiments.common.set_up import Case, SetUp, Words
from experiments.common.sweep import SetUpSweep, sweep_of_words, systems_by_set_up
from experiments.quart.set_ups import GAMMA_LOAD, MAF_LOAD, MODELS, QUART, SYSTEMS, Model

CV: Final = 4  # of the Gamma arrivals that are swept
LOADS: Final = (1.0, 2.0, 6.0)
MAF_LOADS: Final = (1.0, 3.0)
STARTS: Final = (2, 4)
LONGER: Final = 4
TOLD: Final[Words] = ("system.stages.planned_per_s=null",)  # the mean rate of the run's configuration
UNCOUNTED: Final[Words] = ("system.stages.drain_s=1e9",)  # longer than any run


def sweeps_of(cases: Sequence[Case]) -> tuple[SetUpSweep, ...]:
    """Return the sweeps of every set-up with this CV or with Azure Functions that several systems serve.

    They are run under the first seed.
    """
    by_set_up = systems_by_set_up(cases, _is_swept)
    return tuple(sweep for set_up, systems in by_set_up.items() for sweep in _sweeps_of(set_up, systems))


def _is_swept(case: Case) -> bool:
    ends = case.set_up.name.endswith((f", CV {CV}", ", MAF"))
    return ends and case.label in SYSTEMS and not case.once


def _sweeps_of(set_up: SetUp, systems: Sequence[Case]) -> Iterator[SetUpSweep]:
    model = next(model for model in MODELS if set_up.name.startswith(model.title))
    bursts = set_up.name.endswith(", MAF")
    loads = {f"{load:g} busy": _rate(model, load) for load in (MAF_LOADS if bursts else LOADS)}
    about = f"replicas of every stage that the mean rate keeps busy; the set-up's is {_load(bursts):g}"
    yield sweep_of_words("mean load", set_up, about, systems, loads)
    starts = {f"{count} replicas": (f"pipeline.replicas={count}",) for count in STARTS}
    yield sweep_of_words(
        "start", set_up, "replicas of every stage at the start; the set-up's is 1", systems, starts
    )
    about = "the rate that InferLine plans for; the set-up's is that of the first second"
    yield _of_one("plan", set_up, about, systems=systems, label="inferline", values={"the mean rate": TOLD})
    if not bursts:
        about = (
            "what the formula of QUART's corrector takes for arrivals; the set-up's has what queues with them"
        )
        yield _of_one(
            "queue", set_up, about, systems=systems, label=QUART, values={"arrivals alone": UNCOUNTED}
        )
        longer = {f"{LONGER} times": (f"trace.requests={LONGER * int(set_up.word('trace.requests'))}",)}
        yield sweep_of_words("length", set_up, "requests of a run, over the set-up's", systems, longer)


def _of_one(
    kind: str, set_up: SetUp, about: str, *, systems: Sequence[Case], label: str, values: Mapping[str, Words]
) -> SetUpSweep:
    """One system is changed; the others have the runs of the set-up."""
    return sweep_of_words(
        kind,
        set_up,
        about,
        systems,
        values,
        words_of=lambda case, words: words if case.label == label else None,
    )


def _load(bursts: bool) -> float:
    return MAF_LOAD if bursts else GAMMA_LOAD


def _rate(model: Model, load: float) -> Words:
    return (f"trace.rate_per_s={model.rate_per_s(load):.6g}",)
