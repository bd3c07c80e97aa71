"""The rates of flows on shared links: weighted max-min fairness with caps and strict priorities.

All flows are filled at one level (bytes/s per unit of weight) that rises until a flow reaches its cap or a
link is full. These flows keep their level and the others continue (progressive filling, Bertsekas and
Gallager, Data Networks, section 6.5.2). The result is unique: no flow can get more without taking from a flow
that has no more per weight.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from hwmodels.fabric.flow import FlowSpec

# A remainder of a link below this share is rounding: each of n rates is right to 1e-16 of the link.
ROUNDING: Final = 1e-12
# A sum of weights that fell below this share of its last fresh sum is computed afresh.
RESUM: Final = 1e-3
_OPEN: Final = -1.0


def fill(flows: Sequence[FlowSpec], capacities: Sequence[float], free: list[float]) -> list[float]:
    """Return the rate of each flow, bytes/s; ``free``, by link, is what other flows leave of ``capacities``.

    Every flow crosses at least one link; sizes and latencies do not matter. Only the entries of links that
    the flows cross are read; the flows' rates are subtracted from them.
    """
    priorities = {flow.priority for flow in flows}
    if len(priorities) == 1:
        return _fill_class(flows, free)
    rates = [0.0] * len(flows)
    for priority in sorted(priorities, reverse=True):
        members = [number for number, flow in enumerate(flows) if flow.priority == priority]
        crossed = {link for number in members for link in flows[number].links}
        for link in crossed:
            if free[link] <= ROUNDING * capacities[link]:
                free[link] = 0.0
        for number, rate in zip(members, _fill_class([flows[number] for number in members], free)):
            rates[number] = rate
    return rates


def _fill_class(flows: Sequence[FlowSpec], free: list[float]) -> list[float]:
    """Progressive filling of flows of one priority."""
    paths = [flow.links for flow in flows]
    weights = [flow.weight for flow in flows]
    caps = [flow.cap_bytes_per_s for flow in flows]
    crossing: defaultdict[int, list[int]] = defaultdict(list)
    for number, path in enumerate(paths):
        for link in path:
            crossing[link].append(number)
    shares, weight_on = _shares(crossing, weights, caps, free)
    rates = [_OPEN] * len(flows)
    capped = sorted([(cap / weights[number], number) for number, cap in enumerate(caps) if cap < math.inf])
    capped.append((math.inf, -1))
    next_capped = 0
    summed = dict(weight_on)
    while True:
        # A share in the heap may be outdated, but then it is too low: shares only grow.
        level = shares[0][0] if shares else math.inf
        while capped[next_capped][0] <= level:
            number = capped[next_capped][1]
            if number < 0:
                return rates
            next_capped += 1
            if rates[number] == _OPEN:
                rate, weight = caps[number], weights[number]
                rates[number] = rate
                for link in paths[number]:
                    free[link] -= rate
                    weight_on[link] -= weight
        link = shares[0][1]
        total = weight_on[link]
        if total < RESUM * summed[link]:
            total = sum([weights[number] for number in crossing[link] if rates[number] == _OPEN])
            weight_on[link] = summed[link] = total
            if total == 0.0:
                heappop(shares)
                continue
        share = free[link] / total
        if share > level:
            heapreplace(shares, (share, link))
            continue
        heappop(shares)
        _freeze(
            crossing[link],
            max(share, 0.0),
            paths=paths,
            weights=weights,
            rates=rates,
            free=free,
            weight_on=weight_on,
        )
        free[link] = 0.0


def _shares(
    crossing: dict[int, list[int]], weights: list[float], caps: list[float], free: list[float]
) -> tuple[list[tuple[float, int]], dict[int, float]]:
    """Heap of (level at which a link is full, link), and the weight on each link.

    A link that only one flow crosses is just a cap of that flow.
    """
    shares = []
    weight_on = {}
    for link, numbers in crossing.items():
        if len(numbers) == 1:
            weight_on[link] = 0.0
            number = numbers[0]
            if free[link] < caps[number]:
                caps[number] = max(free[link], 0.0)
        else:
            total = sum([weights[number] for number in numbers])
            weight_on[link] = total
            shares.append((free[link] / total, link))
    heapify(shares)
    return shares, weight_on


def _freeze(
    numbers: list[int],
    level: float,
    *,
    paths: list[tuple[int, ...]],
    weights: list[float],
    rates: list[float],
    free: list[float],
    weight_on: dict[int, float],
) -> None:
    """Fix the flows of a full link at this level; subtract their rates from all of their links."""
    for number in numbers:
        if rates[number] == _OPEN:
            weight = weights[number]
            rate = level * weight
            rates[number] = rate
            for link in paths[number]:
                free[link] -= rate
                weight_on[link] -= weight
