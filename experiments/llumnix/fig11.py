"""Figure 11: seven workloads on 16 instances, each at all its rates, under every system."""

from typing import Final

from experiments.common.figure import Figure, FigureRow
from experiments.common.panels import panels_of
from experiments.llumnix.judge import CurvePoint, PointJudge
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.set_ups import INFAAS, LLUMNIX, ROUND_ROBIN, WORKLOADS, PaperWorkload, system

NAME: Final = "figure11"
REQUEST_SLACK: Final = 1.25
DECODE_SLACK: Final = 1.15
RATIO_SLACK: Final = 1.5
_ORDERS: Final = ("request_mean_s", "prefill_mean_s", "preemption_loss_mean_s")
_INPUTS: Final = (
    "16 instances of LLaMA-7B, one A10 each; S, M and L are the artefact's own sample with seed 0, and drawn "
    "as it draws them with others",
    "rates of S-L and L-S between their ends are ours",
    f"bounds: mean request latency within {REQUEST_SLACK:g} times the point, mean decode latency within "
    f"{DECODE_SLACK:g}, the ratio of P99 prefill latencies within {RATIO_SLACK:g} times the points' ratio",
)


def curves(requests: int) -> list[CurvePoint]:
    """Every system, as the paper draws them: round robin for the workloads of conversations alone."""
    return [
        CurvePoint(workload.title, name, rate, system(name, workload.at(rate, requests), workload))
        for workload in WORKLOADS
        for rate in workload.rates_per_s
        for name in systems(workload)
    ]


def systems(workload: PaperWorkload) -> tuple[str, ...]:
    """The best first, as the paper has them."""
    return (LLUMNIX, INFAAS, ROUND_ROBIN) if workload.recorded else (LLUMNIX, INFAAS)


def fig11(judge: PointJudge) -> Figure:
    """Rows against points, then orders; S-L and L-S stand alone."""
    by_place = {(curve.panel, curve.x, curve.system): curve for curve in curves(judge.requests)}
    held, orders = list[FigureRow](), list[FigureRow]()
    for workload in [printed for printed in WORKLOADS if printed.printed]:
        for rate in workload.rates_per_s:
            ours, base = (by_place[workload.title, rate, name] for name in (LLUMNIX, INFAAS))
            for curve in (ours, base):
                held += judge.value(NAME, "request_mean_s", curve, _bounds_of(REQUEST_SLACK))
                held += judge.value(NAME, "decode_mean_s", curve, _bounds_of(DECODE_SLACK))
            held += judge.ratio(NAME, "prefill_p99_s", base, ours, RATIO_SLACK)
            placed = [by_place[workload.title, rate, name] for name in systems(workload)]
            orders += [judge.order(metric, placed) for metric in _ORDERS]
    numbers = judge.numbers(NAME, list(by_place.values()))
    return Figure(
        "fig11",
        "Figure 11: serving, seven workloads",
        (*held, *orders),
        panels=panels_of(numbers, "requests/s"),
        inputs=(*_INPUTS, judge.points.source),
        numbers=numbers,
        columns=len(METRICS),
    )


def _bounds_of(slack: float) -> tuple[float, float]:
    return 1 / slack, slack
