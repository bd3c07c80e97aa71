"""A queue with c equal servers and one line, event by event: an independent yardstick for formulas."""

from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gamma_times(seed: int, count: int, mean: float, cv: float) -> Floats:
    """``count`` draws from the Gamma distribution with this mean and CV."""
    shape = cv**-2
    return np.random.default_rng(seed).gamma(shape, mean / shape, count)


def departures(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """When each is done, in the order in which they came; whoever is first is served first."""
    free = [0.0] * servers
    heapify(free)
    done = np.empty(len(arrivals))
    for index, (arrived, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        end = max(arrived, free[0]) + service
        heapreplace(free, end)
        done[index] = end
    return done


def gap_cv(times: Floats) -> float:
    """CV of the gaps between these times, in order."""
    gaps = np.diff(np.sort(times))
    return float(gaps.std() / gaps.mean())
