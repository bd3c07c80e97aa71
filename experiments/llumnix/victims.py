"""Beyond the paper: who would be preempted goes to a neighbour with free blocks, M-M at all its rates."""

from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric
from experiments.common.set_up import Case, Words
from experiments.llumnix.draw import panels_of
from experiments.llumnix.judge import Curve, Judge
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.set_ups import BY_TITLE, INFAAS, LLUMNIX, system

NAME: Final = "victims"
SHOWN: Final[dict[str, Metric]] = {
    key: METRICS[key] for key in ("preemption_loss_mean_s", "request_p99_s", "prefill_p99_s")
}
_NEIGHBOUR: Final = "migration.victims=neighbour"
# Nobody is paired by load: the gap is never reached.
_VICTIMS_ALONE: Final[Words] = (
    "system/migration=least_loaded", "system.migration.least_gap=1000000", _NEIGHBOUR,
)  # fmt: skip
ARMS: Final[dict[str, tuple[str, Words]]] = {
    "infaas_pp": (INFAAS, ()),
    "infaas_pp, neighbour": (INFAAS, _VICTIMS_ALONE),
    "llumnix": (LLUMNIX, ()),
    "llumnix, neighbour": (LLUMNIX, (_NEIGHBOUR,)),
}


def curves(requests: int) -> list[Curve]:
    """Both systems with and without, at every rate of Figure 11."""
    m_m = BY_TITLE["M-M"]
    found = []
    for rate in m_m.rates_per_s:
        set_up = m_m.at(rate, requests)
        for label, (name, words) in ARMS.items():
            found.append(Curve("", label, rate, system(name, set_up, m_m, words, label=label), SHOWN))
    return found


def cases(requests: int) -> tuple[Case, ...]:
    """Of all curves."""
    return tuple(one.case for one in curves(requests))


def victims(judge: Judge) -> Figure:
    """It stands alone."""
    numbers = judge.numbers(NAME, curves(judge.requests))
    inputs = (
        "M-M on 16 instances of LLaMA-7B; neighbour: where a step would leave less than 1 % of KV memory, "
        "who would be preempted next migrates to the instance with most free blocks",
    )
    panels = panels_of(numbers, "requests/s")
    return Figure(NAME, "Beyond the paper: where victims go", (), panels, inputs, numbers=numbers)
