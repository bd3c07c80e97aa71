"""Beyond the paper: requests are copied to instances that still load, L-L auto-scaled."""

from dataclasses import replace
from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric, summary_metric
from experiments.common.set_up import Case, Words
from experiments.llumnix.draw import panels_of
from experiments.llumnix.fig14 import autoscaled
from experiments.llumnix.judge import Curve, Judge
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.set_ups import BY_TITLE, CLUSTER_12000, LLUMNIX

NAME: Final = "into_loading"
RATES_PER_S: Final = (2.4, 2.6, 2.8)
MOST_REQUESTS: Final = 2_000
SHOWN: Final[dict[str, Metric]] = {
    "decision_to_first_s": summary_metric(
        "decision until the first request has moved there", "s", "migrations.new_instances.decision_s.mean"
    ),
    "loaded_to_first_s": summary_metric(
        "loaded until the first request has moved there", "s", "migrations.new_instances.loaded_s.mean"
    ),
    **{key: METRICS[key] for key in ("prefill_p99_s", "request_mean_s", "preemption_loss_mean_s")},
}
LOADS: Final[dict[str, Words]] = {
    "from disk": (), "over the network": ("system/provision=multicast",),
}  # fmt: skip
ARMS: Final = {"into loading": "true", "after loading": "false"}


def curves(requests: int) -> list[Curve]:
    """Both ways to load at each rate, with and without."""
    l_l, found = BY_TITLE["L-L"], list[Curve]()
    for panel, load in LOADS.items():
        for rate in RATES_PER_S:
            set_up = l_l.at(rate, min(requests, MOST_REQUESTS), words=CLUSTER_12000)
            for label, value in ARMS.items():
                case = autoscaled(LLUMNIX, set_up, (*load, f"migration.into_loading={value}"), panel)
                found.append(Curve(panel, label, rate, replace(case, label=label), SHOWN))
    return found


def cases(requests: int) -> tuple[Case, ...]:
    """Of all curves."""
    return tuple(one.case for one in curves(requests))


def into_loading(judge: Judge) -> Figure:
    """It stands alone."""
    numbers = judge.numbers(NAME, curves(judge.requests))
    inputs = (
        "L-L on up to 16 instances of LLaMA-7B, 8 at the start, looked at every 10 s from 110 s on; "
        "parameters come from the SSD of a host, which four instances share, or over the network from others",
        "KV memory is there before the parameters are; into loading: one stage is copied meanwhile",
    )
    panels = panels_of(numbers, "requests/s")
    return Figure(NAME, "Beyond the paper: into loading instances", (), panels, inputs, numbers=numbers)
