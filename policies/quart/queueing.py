"""How long a request stays at a stage of c replicas: M/M/c, QUART's Eq. 1 as printed, any arrivals."""

from math import floor, inf
from typing import Final, Literal, get_args

DelayForm = Literal[
    "erlang_c",  # exact for Poisson arrivals and exponential times
    "paper",  # Eq. 1 as printed: it multiplies by the probability of an empty stage, not of a wait
    "released",  # as QUART's released code: erlang_c's wait times the arrival rate, requests taken as seconds
    "allen_cunneen",  # erlang_c's wait times half the sum of the squared CVs, for any arrivals and times
]
FORMS: Final = get_args(DelayForm)
MOST_REPLICAS: Final = 4096
"""No search for a number of replicas goes beyond; far more than any cluster here has GPUs."""


def erlang_c(replicas: int, offered: float) -> float:
    """The share of arrivals that wait at a stable M/M/c queue; ``offered``: arrival rate over service rate.

    Uses Erlang B's recursion, which neither overflows nor cancels.
    """
    blocked = 1.0
    for count in range(1, replicas + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1.0 - offered / replicas * (1.0 - blocked))


def empty(replicas: int, offered: float) -> float:
    """The probability that a stable M/M/c queue is empty, P0 of Eq. 1."""
    term = total = 1.0
    for count in range(1, replicas):
        term *= offered / count
        total += term
    return 1.0 / (total + term * offered / replicas / (1.0 - offered / replicas))


def delay_s(
    arrival_per_s: float,
    replica_per_s: float,
    replicas: int,
    *,
    form: DelayForm = "erlang_c",
    arrival_cv: float = 1.0,
    service_cv: float = 1.0,
) -> float:
    """Mean time from arrival to the end of the pass; infinite if work arrives faster than it is done.

    Only ``allen_cunneen`` uses the CVs.
    """
    if replicas < 1 or arrival_per_s >= replicas * replica_per_s:
        return inf
    offered = arrival_per_s / replica_per_s
    if form == "paper":
        spare_per_s = replica_per_s - arrival_per_s / replicas
        wait_s = empty(replicas, offered) * arrival_per_s / (replicas * replica_per_s * spare_per_s)
    else:
        wait_s = erlang_c(replicas, offered) / (replicas * replica_per_s - arrival_per_s)
        if form == "released":
            wait_s *= arrival_per_s
        elif form == "allen_cunneen":
            wait_s *= (arrival_cv**2 + service_cv**2) / 2
    return wait_s + 1.0 / replica_per_s


def smallest_stable(arrival_per_s: float, replica_per_s: float) -> int:
    """The fewest replicas that work faster than requests arrive; 1 if none arrive."""
    return max(1, floor(arrival_per_s / replica_per_s) + 1)


def fewest_within(
    target_s: float,
    arrival_per_s: float,
    replica_per_s: float,
    *,
    form: DelayForm = "erlang_c",
    arrival_cv: float = 1.0,
    service_cv: float = 1.0,
) -> int:
    """The fewest replicas whose delay is at most ``target_s``, which must be longer than a pass."""
    replicas = smallest_stable(arrival_per_s, replica_per_s)
    while replicas < MOST_REPLICAS:
        if (
            delay_s(
                arrival_per_s,
                replica_per_s,
                replicas,
                form=form,
                arrival_cv=arrival_cv,
                service_cv=service_cv,
            )
            <= target_s
        ):
            break
        replicas += 1
    return replicas
