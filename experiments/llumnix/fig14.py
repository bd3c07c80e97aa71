"""Figure 14: auto-scaling in a band of average freeness, L-L at six rates and with five kinds of bursts."""

from dataclasses import replace
from typing import Final

from experiments.common.figure import Figure
from experiments.common.panels import panels_of
from experiments.common.set_up import Case, SetUp, Words
from experiments.llumnix.judge import CurvePoint, PointJudge
from experiments.llumnix.metrics import INSTANCES, METRICS
from experiments.llumnix.set_ups import BY_TITLE, CLUSTER_12000, INFAAS, LLUMNIX, system

NAME: Final = "figure14"
SYSTEMS: Final = (LLUMNIX, INFAAS)
RATES_PER_S: Final = (2.0, 2.2, 2.4, 2.6, 2.8, 3.0)
GAMMA_RATE_PER_S: Final = 2.0
GAP_CVS: Final = (2.0, 3.0, 4.0, 5.0, 6.0)
SCALED: Final = "auto-scaled"
ALL: Final = {**METRICS, **INSTANCES}
INSTANCES_SLACK: Final = 1.1
_EXTRA: Final[Words] = (
    "system.instances.both=8", "system.scaler.first_look_s=110", "engine.start_up=none",
)  # fmt: skip
INPUTS: Final = (
    "8 instances at the start and 1 to 16 later; looked at every 10 s, from 110 s on, as the artefact does",
    "new instances load parameters from the SSD of their host, which four share; the artefact reloads them "
    "too, into workers that run, and does not say how long it takes",
    "mean instances are over step reports, as the artefact averages them: a second counts as often as "
    "instances are at work in it",
)


def autoscaled(name: str, set_up: SetUp, extra: Words = (), suffix: str = SCALED) -> Case:
    """One of the two systems of the figure, with its band as shipped unless ``extra`` sets another.

    suffix: appended to the name of the set-up, because Figure 11 has the same set-up without scaling.
    """
    chosen = "llumnix_base" if name == LLUMNIX else name
    words = (f"system={chosen}_autoscaled", *_EXTRA, *extra)
    return system(name, replace(set_up, name=f"{set_up.name}, {suffix}"), BY_TITLE["L-L"], extra=words)


def curves(requests: int) -> list[CurvePoint]:
    """Return both systems at each rate, then both with each coefficient of variation."""
    l_l = BY_TITLE["L-L"]
    poisson = [("poisson", rate, l_l.at(rate, requests, words=CLUSTER_12000)) for rate in RATES_PER_S]
    gamma = [("gamma", cv, l_l.at(GAMMA_RATE_PER_S, requests, cv, CLUSTER_12000)) for cv in GAP_CVS]
    return [
        CurvePoint(panel, name, x, autoscaled(name, set_up), ALL)
        for panel, x, set_up in (*poisson, *gamma)
        for name in SYSTEMS
    ]


def fig14(judge: PointJudge) -> Figure:
    """Rows at the rates whose points may be here; bursts stand alone."""
    by_place = {(curve.panel, curve.x, curve.system): curve for curve in curves(judge.requests)}
    rows = []
    for rate in RATES_PER_S:
        both = [by_place["poisson", rate, name] for name in SYSTEMS]
        for curve in both:
            rows += judge.value(NAME, "instances_mean", curve, (1 / INSTANCES_SLACK, INSTANCES_SLACK))
        rows += [judge.order(metric, both) for metric in ("instances_mean", "prefill_p99_s")]
    numbers = judge.numbers(NAME, list(by_place.values()))
    return Figure(
        "fig14",
        "Figure 14: auto-scaling",
        tuple(rows),
        panels=panels_of(numbers, "requests/s, or CV of the gaps"),
        inputs=(*INPUTS, judge.points.source),
        numbers=numbers,
        columns=len(ALL),
    )
