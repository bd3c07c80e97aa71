"""QUART with each of its parts switched off, under two workloads: what a part is worth here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from experiments.common.compare import pointed
from experiments.common.figure import Figure, Key, Measured, Row
from experiments.common.outcomes import Metric, Outcomes
from experiments.common.paired import mean_of, ratio_of
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.verdict import below, judged_over
from experiments.llumnix.draw import panels_of
from experiments.quart.judge import as_sweep
from experiments.quart.metrics import LATENCY, P99
from experiments.quart.set_ups import MODELS, QUART, gamma, maf, system
from servetwin.report.number_text import number

KEY: Final[Key] = ("parts switched off", "parts")
PARTS: Final[dict[str, Words]] = {
    "smoother": ("system.stages.smoother=none",),
    "compensator": ("system.stages.compensator=false",),
    "keys": ("system.stages.keys=false",),
    "placement": ("system.stages.placement=false",),
    "PID": ("system.stages.corrector=rate",),
}
CV: Final = 4.0
_METRICS: Final[dict[str, Metric]] = {"mean_ms": LATENCY, "p99_ms": P99}


def set_ups(requests: int) -> dict[str, list[SetUp]]:
    """By workload: every model."""
    return {
        "MAF": [maf(model, requests) for model in MODELS],
        f"CV {CV:g}": [gamma(model, CV, requests) for model in MODELS],
    }


def cases(requests: int) -> list[Case]:
    """With all parts and without each, under the first seed: the models are five cases of their own."""
    every = [one for there in set_ups(requests).values() for one in there]
    return [_case(part, set_up) for set_up in every for part in ("", *PARTS)]


def _case(part: str, set_up: SetUp) -> Case:
    """Without this part; with all of them, where it is empty."""
    whole = replace(system(QUART, set_up), once=True)
    return (
        replace(whole, label=f"{QUART} without {part}", words=(*whole.words, *PARTS[part])) if part else whole
    )


def made(outcomes: Outcomes, requests: int) -> Figure:
    """Mean latency with all parts over that without one, model by model; P99 and all points in the sweep."""
    workloads = set_ups(requests)
    rows = [_row(outcomes, workload, there, part) for workload, there in workloads.items() for part in PARTS]
    numbers = tuple(
        Measured(workload, name, part or QUART, at, tuple(values))
        for workload, there in workloads.items()
        for name, metric in _METRICS.items()
        for part in ("", *PARTS)
        for at, set_up in enumerate(there)
        if (values := metric.of(outcomes.of(_case(part, set_up))))
    )
    inputs = (
        "under the first seed; an interval is over the five models, in order: "
        + ", ".join(model.title for model in MODELS),
    )
    title = "QUART with each of its parts switched off"
    return Figure(
        "parts", title, tuple(rows), panels_of(numbers, "model"), inputs,
        sweeps={KEY: as_sweep("every part off, every model", numbers)}, numbers=numbers,
    )  # fmt: skip


def _row(outcomes: Outcomes, workload: str, there: list[SetUp], part: str) -> Row:
    claim = below(1.0, "shorter", "own_analysis")
    name = f"{workload}: mean latency, quart over quart without {part}"
    found: Mapping[str, list[float]] = {
        one: [
            values[0]
            for set_up in there
            if (values := LATENCY.of(outcomes.of(_case(one, set_up)))) is not None
        ]
        for one in ("", part)
    }
    if any(len(values) < len(there) for values in found.values()):
        why = outcomes.why_not(*[_case(one, set_up) for set_up in there for one in ("", part)])
        return claim.not_comparable(name, there[0].stand_in, why or "a run lacks the number")
    ours, without = found[""], found[part]
    ratio = ratio_of(ours, without)
    assert ratio is not None, "a latency is above 0"
    sizes = f"{number(mean_of(ours).value)} against {number(mean_of(without).value)} ms on average"
    by_model = ", ".join(
        f"{model.title} {number(one / other)}"
        for model, one, other in zip(MODELS, ours, without, strict=True)
    )
    return pointed(judged_over(name, claim, ratio, there[0].stand_in, f"{sizes}; {by_model}"), KEY)
