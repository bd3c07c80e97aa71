"""Beyond the paper: models share a cluster; how long until an instance that is to go gives its GPUs."""

from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric, summary_metric
from experiments.common.set_up import Case, SetUp
from experiments.llumnix.draw import panels_of
from experiments.llumnix.judge import Curve, Judge

NAME: Final = "vacate"
MODELS: Final = (4, 6, 8, 12)
MOST_REQUESTS: Final = 1_500
_RATE_PER_S: Final = 10
ARMS: Final = {"migration": "least_loaded", "without": "none"}


METRICS: Final[dict[str, Metric]] = {
    "freeing_mean_s": summary_metric("mean time to free the GPUs", "s", "freeing_s.mean"),
    "freeing_max_s": summary_metric("longest time to free the GPUs", "s", "freeing_s.max"),
    "prefill_p99_ms": summary_metric("P99 prefill latency", "ms", "ttft_ms.p99"),
}


def curves(requests: int) -> list[Curve]:
    """With and without, for each number of models."""
    found = []
    for count in MODELS:
        models = ("models=zipf", f"models.count={count}", f"models.rate_per_s={_RATE_PER_S}")
        trace = ("trace=azure_code_like", f"trace.limit={min(requests, MOST_REQUESTS)}")
        set_up = SetUp(
            f"{count} models", ("cluster=blitz_b", *models, "uncertainty=off"), trace, rate="written"
        )
        for label, option in ARMS.items():
            words = (
                "system=blitz_multicast", "system.instances.split=false", f"system/migration={option}",
            )  # fmt: skip
            found.append(Curve("", label, count, Case(label, set_up, words), METRICS))
    return found


def cases(requests: int) -> tuple[Case, ...]:
    """Of all curves."""
    return tuple(one.case for one in curves(requests))


def vacate(judge: Judge) -> Figure:
    """It stands alone."""
    numbers = judge.numbers(NAME, curves(judge.requests))
    inputs = (
        f"lengths of azure_code_like, {_RATE_PER_S}/s over so many models of 8 billion parameters on 16 GPUs",
        "from the decision that an instance goes until its GPUs are free; what runs there ends, or "
        "migrates to another instance of its model",
    )
    panels = panels_of(numbers, "models")
    return Figure(NAME, "Beyond the paper: GPUs for other models", (), panels, inputs, numbers=numbers)
