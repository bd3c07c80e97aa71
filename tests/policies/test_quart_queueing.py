"""Delay formulas against an independent sum and against queues simulated event by event; Whitt's CVs."""

from math import factorial, inf, isclose, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quart.cv import departure_cv, propagated
from policies.quart.queueing import delay_s, empty, erlang_c, fewest_within, smallest_stable
from tests.worlds.pipeline_views import stage
from tests.worlds.queue_simulation import departures, gamma_times, gap_cv

REPLICAS = st.integers(1, 24)
BUSY = st.floats(0.01, 0.99)


@given(REPLICAS, BUSY)
def test_erlang_c_is_the_sum_over_states(replicas: int, busy: float) -> None:
    offered = replicas * busy
    states = [offered**n / factorial(n) for n in range(replicas)]
    waiting = offered**replicas / factorial(replicas) / (1 - busy)
    total = sum(states) + waiting
    assert isclose(erlang_c(replicas, offered), waiting / total, rel_tol=1e-9)
    assert isclose(empty(replicas, offered), 1 / total, rel_tol=1e-9)


@given(REPLICAS, BUSY, st.floats(0.01, 100))
def test_one_more_replica_never_slows(replicas: int, busy: float, replica_per_s: float) -> None:
    arrivals = replicas * busy * replica_per_s
    delays = [delay_s(arrivals, replica_per_s, count) for count in range(1, replicas + 3)]
    assert delays == sorted(delays, reverse=True)
    assert delays[-1] >= 1 / replica_per_s


@pytest.mark.parametrize(("replicas", "busy"), [(1, 0.6), (3, 0.7), (8, 0.8)])
def test_erlang_c_is_what_a_simulated_queue_does(replicas: int, busy: float) -> None:
    count = 300_000
    arrivals = np.cumsum(gamma_times(1, count, 1.0, 1.0))
    done = departures(arrivals, gamma_times(2, count, replicas * busy, 1.0), replicas)
    simulated = float((done - arrivals).mean())
    assert isclose(delay_s(1.0, 1 / (replicas * busy), replicas), simulated, rel_tol=0.02)


def test_the_printed_form_is_not_erlang_c() -> None:
    """One replica at rho 0.9: it waits nine passes, and Eq. 1 says 0.9."""
    assert isclose(delay_s(0.9, 1.0, 1, form="erlang_c") - 1, 9.0)
    assert isclose(delay_s(0.9, 1.0, 1, form="paper") - 1, 0.9)


def test_the_released_form_has_the_length_of_the_queue_for_its_wait() -> None:
    """At rho 0.9 8.1 requests wait, at whatever rate: Little's law, lambda times the wait."""
    assert isclose(delay_s(0.9, 1.0, 1, form="released") - 1, 8.1)
    assert isclose(delay_s(9.0, 10.0, 1, form="released") - 0.1, 8.1)
    assert (fewest_within(0.2, 9.0, 10.0, form="released"), fewest_within(0.2, 9.0, 10.0)) == (3, 2)


def test_allen_cunneen_waits_by_the_cvs() -> None:
    exact = delay_s(2.5, 1.0, 3) - 1
    assert isclose(delay_s(2.5, 1.0, 3, form="allen_cunneen", arrival_cv=2.0, service_cv=0.0) - 1, 2 * exact)
    assert delay_s(2.5, 1.0, 3, form="allen_cunneen", arrival_cv=1.0, service_cv=1.0) == exact + 1


def test_an_unstable_stage_waits_for_ever_and_has_a_smallest_stable_size() -> None:
    assert delay_s(3.0, 1.0, 3) == delay_s(3.1, 1.0, 3, form="paper") == delay_s(1.0, 1.0, 0) == inf
    assert [smallest_stable(rate, 1.0) for rate in (0.0, 0.5, 3.0, 3.1)] == [1, 1, 4, 4]


@given(st.floats(0.1, 40), st.floats(1.05, 5.0))
def test_the_fewest_within_a_target_keep_it_and_one_less_does_not(rate: float, slack: float) -> None:
    found = fewest_within(slack, rate, 1.0)
    assert delay_s(rate, 1.0, found) <= slack
    assert found == 1 or delay_s(rate, 1.0, found - 1) > slack


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(
    ("replicas", "arrival_cv", "service_cv"),
    [(1, 1, 0.2), (1, 1, 1), (4, 1, 0.2), (4, 1, 1), (4, 2, 0.2)],
)
def test_whitts_departures_are_within_a_tenth(
    replicas: int, arrival_cv: float, service_cv: float, busy: float
) -> None:
    count = 60_000
    arrivals = np.cumsum(gamma_times(1, count, 1.0, arrival_cv))
    done = departures(arrivals, gamma_times(2, count, replicas * busy, service_cv), replicas)
    assert isclose(departure_cv(arrival_cv, service_cv, busy, replicas), gap_cv(done), rel_tol=0.1)


def test_of_very_bursty_arrivals_whitt_predicts_too_much() -> None:
    """At CV 8 a busy stage smooths more than the formula says: it errs to the safe side."""
    count = 100_000
    arrivals = np.cumsum(gamma_times(1, count, 1.0, 8.0))
    simulated = gap_cv(departures(arrivals, gamma_times(2, count, 0.9, 0.2), 1))
    assert 1.1 * simulated < departure_cv(8.0, 0.2, 0.9, 1) < 1.35 * simulated


def test_constant_times_only_smooth() -> None:
    stages = [stage(index, service_cv=0.0, arrival_per_s=9.0) for index in range(4)]
    assert [round(cv, 2) for cv in propagated(1.0, stages)] == [1.0, 0.44, 0.19, 0.08]


def test_variable_times_raise_a_low_cv() -> None:
    """The direction of the paper's Fig. 2, from CV 0.1, needs stages whose times vary."""
    stages = [stage(index, service_cv=0.5, arrival_per_s=6.0) for index in range(5)]
    cvs = propagated(0.1, stages)
    assert list(cvs) == sorted(cvs)
    assert cvs[-1] > 2.5 * cvs[0]


@given(st.floats(0, 10), st.floats(0, 3), st.floats(0, 2), st.integers(1, 50))
def test_a_cv_is_never_negative(arrival: float, service: float, busy: float, replicas: int) -> None:
    assert 0 <= departure_cv(arrival, service, busy, replicas) <= sqrt(arrival**2 + service**2 + 1)
