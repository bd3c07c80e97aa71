"""Figure 4: how often ServerlessLLM finds a model in no memory of the host it starts on, by load."""

from typing import Any, Final

from experiments.blitzscale.set_ups import many_models
from experiments.common.compare import order_row, pointed, value_row
from experiments.common.figure import Figure, Key, Panel, PlotLine
from experiments.common.outcomes import MISS_RATE, Outcomes
from experiments.common.paired import mean_of
from experiments.common.set_up import Case
from experiments.common.verdict import within

# BlitzScale (OSDI 2025), Figure 4, on BurstGPT: "20 to 46 %, depending on the time".
_PAPER: Final = within(0.20, 0.46, "20 to 46 %")
# The paper does not state the load of the models. The loads that are compared with it are that of all other
# figures' rule and half of it; the other loads show how the number depends on the load.
_JUDGED: Final = (0.5, 0.25)
SHARES: Final = (0.1, 0.15, 0.25, 0.5)
KEY: Final[Key] = ("mean load", "Figure 4")


def cases() -> tuple[Case, ...]:
    """2 models in a host's memory and 300 s, under each load; with a larger memory; with a shorter life."""
    least = _JUDGED[-1]
    published = tuple(many_models(share) for share in SHARES)
    return (*published, many_models(least, cached=4), many_models(least, briefly=True))


def fig4(outcomes: Outcomes) -> Figure:
    """The miss rate, and that it rises with load, falls with memory and rises when copies live shorter."""
    *published, larger, briefer = cases()
    by_share = dict(zip(SHARES, published, strict=True))
    least = by_share[_JUDGED[-1]]
    rows = [
        *(
            value_row(outcomes, f"host-cache miss rate, {case.label}", _PAPER, MISS_RATE, ours=case)
            for case in (by_share[share] for share in _JUDGED)
        ),
        order_row(outcomes, "misses by load", MISS_RATE, published, "own_analysis"),
        order_row(outcomes, "misses by memory", MISS_RATE, (larger, least), "own_analysis"),
        order_row(outcomes, "misses by time to live", MISS_RATE, (least, briefer), "own_analysis"),
    ]
    points = _points(outcomes, by_share)
    if points:
        rows = [pointed(row, KEY) for row in rows]
    rates = dict.fromkeys(run.inputs for case in cases() for run in outcomes.of(case))
    inputs = (
        "16 models by Zipf 0.9 on 32 hosts of one GPU; only single-GPU hosts make several instances of one "
        "model start on as many hosts; C: prompt tokens per second of 20 instances",
        *rates,
    )
    saved = {KEY: {"told": "share of look-ups that miss, by mean load, all seeds", "points": points}}
    return Figure(
        "fig4",
        "Figure 4: host-cache misses of ServerlessLLM",
        tuple(rows),
        panels=_panels(points),
        inputs=inputs,
        sweeps=saved if points else {},
    )


def _points(outcomes: Outcomes, by_share: dict[float, Case]) -> dict[str, Any]:
    points = {}
    for share, case in by_share.items():
        if values := MISS_RATE.of(outcomes.of(case)):
            mean = mean_of(values)
            points[f"{share:g} C"] = {"mean": mean.value, "low": mean.low, "high": mean.high, "seeds": values}
    return points


def _panels(points: dict[str, Any]) -> tuple[Panel, ...]:
    if not points:
        return ()
    x = [float(label.removesuffix(" C")) for label in points]
    line = PlotLine("misses", x, [100 * point["mean"] for point in points.values()], "o-")
    return (Panel("misses by load", "mean load over C", "% of look-ups", (line,)),)
