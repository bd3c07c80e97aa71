"""Beyond the paper: requests that are lost with a host, by how long before there is a notice of it."""

from dataclasses import replace
from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric, summary_metric
from experiments.common.set_up import Case, Words
from experiments.llumnix.draw import panels_of
from experiments.llumnix.judge import Curve, Judge
from experiments.llumnix.set_ups import BY_TITLE, INFAAS, LLUMNIX, system

NAME: Final = "notice"
RATE_PER_S: Final = 2.6
NOTICES_S: Final = (0, 1, 2, 5, 10, 30, 120)
"""Clouds give 30 s (GCP, Azure) or 120 s (AWS) before they take a spot machine back."""
MOST_REQUESTS: Final = 2_000
_REQUESTS_BEFORE: Final = 2 / 3
_HOST: Final[Words] = ("faults=one_host", "faults.host=1")
LOST: Final = summary_metric("requests lost", "", "requests.failed")
METRICS: Final[dict[str, Metric]] = {"lost": LOST}
_SYSTEMS: Final = (LLUMNIX, INFAAS)


def curves(requests: int) -> list[Curve]:
    """Both systems with each notice."""
    few = min(requests, MOST_REQUESTS)
    set_up = BY_TITLE["L-L"].at(RATE_PER_S, few)
    at_s = round(_REQUESTS_BEFORE * few / RATE_PER_S)
    found = []
    for notice_s in NOTICES_S:
        words = (*_HOST, f"faults.at_s={at_s}", f"faults.notice_s={notice_s}")
        here = replace(set_up, name=f"{set_up.name}, {notice_s} s of notice")
        both = {name: system(name, here, BY_TITLE["L-L"], words) for name in _SYSTEMS}
        found += [Curve("", name, notice_s, case, METRICS) for name, case in both.items()]
    return found


def cases(requests: int) -> tuple[Case, ...]:
    """Of all curves."""
    return tuple(one.case for one in curves(requests))


def notice(judge: Judge) -> Figure:
    """Requests lost by notice: it stands alone."""
    found = curves(judge.requests)
    numbers = judge.numbers(NAME, found)
    inputs = (
        f"L-L at {RATE_PER_S:g}/s on 16 instances of LLaMA-7B; after two thirds of the requests a host with "
        "4 of them is lost",
        "from the notice on its instances take nothing new; without migration they decode on until the loss",
    )
    return Figure(
        NAME, "Beyond the paper: notice of a loss", (), panels_of(numbers, "notice, s"), inputs,
        numbers=numbers,
    )  # fmt: skip
