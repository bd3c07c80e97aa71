"""Figure 15: what more instances buy: the band of freeness moved from few free blocks per request to many."""

from typing import Final

from experiments.common.figure import Figure
from experiments.common.panels import panels_of
from experiments.common.set_up import Case
from experiments.llumnix.fig14 import ALL, INPUTS, SCALED, SYSTEMS, autoscaled
from experiments.llumnix.judge import CurvePoint, PointJudge
from experiments.llumnix.set_ups import BY_TITLE, CLUSTER_12000

NAME: Final = "figure15"
RATE_PER_S: Final = 2.0
_GAP_CV: Final = 2.0
LOWS: Final = (5, 10, 25, 45, 65, 85)


def curves(requests: int) -> list[CurvePoint]:
    """Both systems, each with its band from each lower bound on."""
    return [CurvePoint("", name, low, _case(name, low, requests), ALL) for low in LOWS for name in SYSTEMS]


def _case(name: str, low: int, requests: int) -> Case:
    set_up = BY_TITLE["L-L"].at(RATE_PER_S, requests, _GAP_CV, CLUSTER_12000)
    return autoscaled(name, set_up, (f"system.scaler.low={low}",), f"{SCALED} from {low}")


def fig15(judge: PointJudge) -> Figure:
    """Return the figure without rows to compare: the paper prints no number of it."""
    numbers = judge.numbers(NAME, curves(judge.requests))
    return Figure(
        "fig15",
        "Figure 15: instances and latency by the band",
        (),
        panels=panels_of(numbers, "lower bound of the band, blocks per request"),
        inputs=(*INPUTS, judge.points.source),
        numbers=numbers,
        columns=len(ALL),
    )
