"""Stages as queues: what the world makes of drawn times is what c servers with one line do, stage by stage.

So what holds of that line holds of stages: its delay is Erlang's within 2 % where times are exponential, its
departures have Whitt's CV within 10 %.
"""

import numpy as np
import pytest

from policies.quart.cv import departure_cv
from policies.quart.queueing import delay_s
from tests.worlds.queue_simulation import Floats, departures, gamma_times, gap_cv
from tests.worlds.stage_world import StageCase, run

MEAN_NS = 20e6


def in_turn(arrivals: Floats, times: Floats, servers: int) -> Floats:
    """When each leaves a stage, by request; they come in any order."""
    order = np.argsort(arrivals, kind="stable")
    done = np.empty(len(arrivals))
    done[order] = departures(arrivals[order], times[order], servers)
    return done


def drawn(requests: int, servers: tuple[int, ...], busy: float, cv: float) -> tuple[Floats, list[Floats]]:
    """Whole nanoseconds: Poisson arrivals that keep each server busy so much, a time per stage."""
    gaps = gamma_times(1, requests, MEAN_NS, 1.0)
    means = [busy * count * MEAN_NS for count in servers]
    times = [gamma_times(2 + stage, requests, mean, cv) for stage, mean in enumerate(means)]
    return np.cumsum(gaps).round(), [np.maximum(one, 1).round() for one in times]


@pytest.mark.parametrize(("servers", "cv"), [((1,), 1.0), ((3, 1, 2), 1.0), ((2, 3, 1), 0.2)])
def test_stages_are_lines_of_servers_one_after_the_other(servers: tuple[int, ...], cv: float) -> None:
    arrivals, times = drawn(500, servers, 0.8, cv)
    gpus, first = [], 0
    for count in servers:
        gpus.append(tuple(range(first, first + count)))
        first += count
    case = StageCase([int(at) for at in arrivals], [[int(one) for one in own] for own in times], gpus)
    found = run(case)
    came = arrivals
    for stage, (count, own) in enumerate(zip(servers, times, strict=True)):
        done = in_turn(came, own, count)
        ended = {row["request"]: row["ended_ns"] for row in found.log() if row["stage"] == stage}
        assert [ended[request] for request in range(500)] == done.astype(int).tolist()
        came = done


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (2, 0.7), (4, 0.8)])
def test_exponential_times_have_erlangs_delay(servers: int, busy: float) -> None:
    arrivals, (times,) = drawn(400_000, (servers,), busy, 1.0)
    delay_ns = float((departures(arrivals, times, servers) - arrivals).mean())
    wanted_s = delay_s(1e9 / MEAN_NS, 1e9 / (busy * servers * MEAN_NS), servers)
    assert delay_ns / 1e9 == pytest.approx(wanted_s, rel=0.02)


@pytest.mark.parametrize("cv", [0.2, 1.0])
@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (1, 0.7), (2, 0.7), (4, 0.8)])
def test_departures_have_whitts_cv(servers: int, busy: float, cv: float) -> None:
    arrivals, (times,) = drawn(100_000, (servers,), busy, cv)
    found = gap_cv(departures(arrivals, times, servers))
    assert found == pytest.approx(departure_cv(1.0, cv, busy, servers), rel=0.10)
