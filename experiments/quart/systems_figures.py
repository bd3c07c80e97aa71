"""Figures 6, 7 and 8: QUART beside three baselines, under Azure Functions and Gamma arrivals."""

from collections.abc import Sequence
from typing import Final

from experiments.common.figure import Figure, FigureRow, Key, MeasuredPoint
from experiments.common.outcomes import Metric, Outcomes
from experiments.common.panels import panels_of
from experiments.common.set_up import Case
from experiments.common.verdict import shorter, times
from experiments.quart.judge import MeanJudge, MetricOf, Place, as_sweep
from experiments.quart.metrics import LATENCY, P50, P75, P90, P99, QUEUE, goodput, satisfied
from experiments.quart.set_ups import (
    CVS,
    GAMMA_LOAD,
    LENIENT,
    MAF_LOAD,
    MODELS,
    QUART,
    SYSTEMS,
    Model,
    gamma,
    maf,
    system,
)

OBJECTIVES: Final = (1.0, 1.5, 2.0, 2.5, 3.0)
KEY_6: Final[Key] = ("models", "Figure 6")
KEY_7: Final[Key] = ("CVs", "Figure 7")
KEY_8: Final[Key] = ("quantiles and queues", "Figure 8")
MAF_ORDER: Final = (QUART, "cocktail", "inferline", "infless")
CV_ORDER: Final = (QUART, "cocktail", "infless", "inferline")
MAF_SHORTER: Final = {"infless": 87.1, "inferline": 70.5, "cocktail": 36.7}
MAF_SATISFIED: Final = {"infless": 2.19, "inferline": 2.37, "cocktail": 2.09}
CV_SHORTER: Final = {"infless": 69.8, "inferline": 77.2, "cocktail": 47.8}
CV_GOODPUT: Final = {"infless": 13.5, "inferline": 14.4, "cocktail": 2.3}
CV_8_GOODPUT: Final = {"infless": 17.9, "inferline": 32.4, "cocktail": 3.9}


def maf_places(requests: int) -> list[Place]:
    """Every model under the Azure Functions stand-in."""
    return [(model, maf(model, requests)) for model in MODELS]


def cv_places(requests: int, cvs: Sequence[float] = CVS) -> list[Place]:
    """Every model at these CVs."""
    return [(model, gamma(model, cv, requests)) for model in MODELS for cv in cvs]


def cases_6(requests: int) -> list[Case]:
    """Five models, four systems."""
    return [system(name, set_up) for _, set_up in maf_places(requests) for name in SYSTEMS]


def cases_7(requests: int) -> list[Case]:
    """Five CVs beside; Figure 8 is made of the same runs."""
    return [system(name, set_up) for _, set_up in cv_places(requests) for name in SYSTEMS]


def fig6(outcomes: Outcomes) -> Figure:
    """Mean latency of all models and of each, the objective at 1.5 times, tails."""
    judge, places = MeanJudge(outcomes, KEY_6), maf_places(outcomes.requests)
    rows = [
        judge.ratio(
            f"mean latency, five models, quart over {name}",
            shorter(gain),
            for_all_models(LATENCY),
            places,
            ours=QUART,
            over=name,
        )
        for name, gain in MAF_SHORTER.items()
    ]
    rows += [
        judge.ratio(
            f"{model.title}: mean latency, quart over cocktail",
            shorter(model.gain), for_all_models(LATENCY), [(model, set_up)], ours=QUART, over="cocktail",
        )
        for model, set_up in places
    ]  # fmt: skip
    rows += [
        judge.ratio(
            f"requests within 1.5 times the execution time, quart over {name}",
            times(factor), _satisfied_share(1.5), places, ours=QUART, over=name,
        )
        for name, factor in MAF_SATISFIED.items()
    ]  # fmt: skip
    rows.append(judge.order("order of mean latency", for_all_models(LATENCY), places, MAF_ORDER, "ms"))
    rows += [
        judge.order(f"order of {metric.label}", for_all_models(metric), places, MAF_ORDER, "ms")
        for metric in (P75, P99)
    ]
    metrics: dict[str, MetricOf] = {
        "mean_ms": for_all_models(LATENCY),
        "p75_ms": for_all_models(P75),
        "p99_ms": for_all_models(P99),
    }
    metrics |= {f"within_{objective:g}x": _satisfied_share(objective) for objective in OBJECTIVES}
    numbers = judge.numbers(metrics, {("", at): place for at, place in enumerate(places)})
    inputs = (
        f"mean rate: {MAF_LOAD:g} replicas of every stage busy all the time; replicas begin at 1",
        f"models, in order: {', '.join(model.title for model in MODELS)}",
    )
    return _figure(
        "fig6",
        "Figure 6: Azure Functions, five models",
        rows=rows,
        numbers=numbers,
        x="model",
        inputs=inputs,
        key=KEY_6,
    )


def fig7(outcomes: Outcomes) -> Figure:
    """Mean latency and goodput over five CVs."""
    requests = outcomes.requests
    judge, places = MeanJudge(outcomes, KEY_7), cv_places(requests)
    rows = [
        judge.ratio(
            f"mean latency, all CVs, quart over {name}",
            shorter(gain),
            for_all_models(LATENCY),
            places,
            ours=QUART,
            over=name,
        )
        for name, gain in CV_SHORTER.items()
    ]
    for scope, factors, cvs in (("all CVs", CV_GOODPUT, CVS), ("CV 8", CV_8_GOODPUT, (8.0,))):
        rows += [
            judge.ratio(
                f"goodput, {scope}, quart over {name}",
                times(factor), lenient_goodput, cv_places(requests, cvs), ours=QUART, over=name,
            )
            for name, factor in factors.items()
        ]  # fmt: skip
    rows.append(
        judge.order("order of mean latency, all CVs", for_all_models(LATENCY), places, CV_ORDER, "ms")
    )
    metrics: dict[str, MetricOf] = {"mean_ms": for_all_models(LATENCY), "goodput_per_s": lenient_goodput}
    numbers = judge.numbers(metrics, _by_cv(requests))
    return _figure(
        "fig7",
        "Figure 7: five CVs, five models",
        rows=rows,
        numbers=numbers,
        x="CV",
        inputs=_cv_inputs(),
        key=KEY_7,
    )


def fig8(outcomes: Outcomes) -> Figure:
    """Quantiles of latency, and queues of the stages."""
    judge, places = MeanJudge(outcomes, KEY_8), cv_places(outcomes.requests)
    rows = [
        judge.order(f"order of {metric.label}, all CVs", for_all_models(metric), places, CV_ORDER, "ms")
        for metric in (P50, P90, P99)
    ]
    rows.append(
        judge.ratio(
            "mean queue, infless over quart",
            times(10.1),
            for_all_models(QUEUE),
            places,
            ours="infless",
            over=QUART,
        )
    )
    metrics: dict[str, MetricOf] = {
        "p50_ms": for_all_models(P50),
        "p90_ms": for_all_models(P90),
        "p99_ms": for_all_models(P99),
        "queue": for_all_models(QUEUE),
    }
    numbers = judge.numbers(metrics, _by_cv(outcomes.requests))
    return _figure(
        "fig8",
        "Figure 8: quantiles and queues",
        rows=rows,
        numbers=numbers,
        x="CV",
        inputs=_cv_inputs(),
        key=KEY_8,
    )


def _figure(
    name: str,
    title: str,
    *,
    rows: Sequence[FigureRow],
    numbers: tuple[MeasuredPoint, ...],
    x: str,
    inputs: tuple[str, ...],
    key: Key,
) -> Figure:
    sweep = as_sweep(f"every number of {title}", numbers)
    return Figure(
        name,
        title,
        tuple(rows),
        panels=panels_of(numbers, x),
        inputs=inputs,
        sweeps={key: sweep},
        numbers=numbers,
    )


def _by_cv(requests: int) -> dict[tuple[str, float], Place]:
    return {(model.title, cv): (model, gamma(model, cv, requests)) for model in MODELS for cv in CVS}


def _cv_inputs() -> tuple[str, ...]:
    return (
        f'"a large QPS": {GAMMA_LOAD:g} replicas of every stage busy all the time; replicas begin at 1',
        f'"a lenient SLO": {LENIENT:g} times the execution time, for systems and for goodput',
    )


def for_all_models(metric: Metric) -> MetricOf:
    """Return the same metric for every model."""
    return lambda _: metric


def _satisfied_share(objective: float) -> MetricOf:
    return lambda model: satisfied(model.exec_s, objective)


def lenient_goodput(model: Model) -> Metric:
    """Return the requests within the lenient SLO of the model, per second."""
    return goodput(model.exec_s, LENIENT)
