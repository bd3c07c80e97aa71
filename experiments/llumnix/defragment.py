"""Beyond the paper: prefill and decode apart, and requests move to make room for hand-overs that wait."""

from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric
from experiments.common.set_up import Case, Words
from experiments.llumnix.draw import panels_of
from experiments.llumnix.judge import Curve, Judge
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.set_ups import BY_TITLE

NAME: Final = "defragment"
RATES_PER_S: Final = (4.0, 4.5, 5.0, 5.5, 6.0)
MOST_REQUESTS: Final = 2_000
PREFILL: Final = 4
DECODE: Final = 12
SHOWN: Final[dict[str, Metric]] = {
    key: METRICS[key]
    for key in ("decode_mean_s", "decode_p99_s", "prefill_p99_s", "request_mean_s", "request_p99_s")
}
# A decode instance keeps room for all that a request writes, so nobody is preempted there.
_SYSTEM: Final[Words] = (
    "system=distserve_full", f"system.instances.prefill={PREFILL}", f"system.instances.decode={DECODE}",
    "engine.reserve=oracle",
)  # fmt: skip
ARMS: Final = ("none", "defragment", "least_loaded", "llumnix")


def curves(requests: int) -> list[Curve]:
    """Each policy at each rate."""
    found = []
    for rate in RATES_PER_S:
        set_up = BY_TITLE["M-M"].at(rate, min(requests, MOST_REQUESTS))
        for name in ARMS:
            words = (*_SYSTEM, f"system/migration={name}")
            found.append(Curve("", name, rate, Case(name, set_up, words), SHOWN))
    return found


def cases(requests: int) -> tuple[Case, ...]:
    """Of all curves."""
    return tuple(one.case for one in curves(requests))


def defragment(judge: Judge) -> Figure:
    """It stands alone."""
    numbers = judge.numbers(NAME, curves(judge.requests))
    inputs = (
        f"M-M on {PREFILL} prefill and {DECODE} decode instances of LLaMA-7B; room is kept for all that a "
        "request writes, and a completed prompt waits where no decode instance has it",
        "decode latency counts from the first token on, so it has that wait",
    )
    panels = panels_of(numbers, "requests/s")
    return Figure(
        NAME, "Beyond the paper: room on decode instances", (), panels, inputs, numbers=numbers
    )  # fmt: skip
