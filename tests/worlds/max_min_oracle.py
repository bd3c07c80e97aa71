"""Two other ways to weighted max-min rates, which share nothing with the fabric but its flows.

``by_programs``: the lexicographic optimum as a sequence of linear programs (OR-tools GLOP). ``by_fractions``:
progressive filling in exact arithmetic, all of it from the start, whatever it costs.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from hwmodels.fabric.flow import FlowSpec


def by_programs(flows: Sequence[FlowSpec], capacities: Sequence[float]) -> list[float]:
    """Rates: maximise the least rate per weight, fix the flows that hold it down, go on with the others."""
    unit = max(capacities)
    free = [capacity / unit for capacity in capacities]
    rates = [0.0] * len(flows)
    for members in _by_priority(flows):
        open_flows = set(members)
        while open_flows:
            level, held = _least_level(flows, sorted(open_flows), free, unit)
            for number in held:
                rate = level * flows[number].weight
                rates[number] = rate * unit
                for link in flows[number].links:
                    free[link] = max(free[link] - rate, 0.0)
            open_flows -= held
        free = [left if left > 1e-12 else 0.0 for left in free]
    return rates


def _least_level(
    flows: Sequence[FlowSpec], numbers: list[int], free: Sequence[float], unit: float
) -> tuple[float, set[int]]:
    """(the greatest least rate per weight, the flows that have it in every optimum: prices not 0)."""
    from ortools.linear_solver import pywraplp

    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    tight = "primal_feasibility_tolerance:1e-12 dual_feasibility_tolerance:1e-12"
    assert solver.SetSolverSpecificParametersAsString(tight)
    level = solver.NumVar(0, solver.infinity(), "")
    rate = {
        number: solver.NumVar(0, min(flows[number].cap_bytes_per_s / unit, solver.infinity()), "")
        for number in numbers
    }
    crossing: dict[int, list[int]] = {}
    for number in numbers:
        for link in flows[number].links:
            crossing.setdefault(link, []).append(number)
    for link, on in crossing.items():
        solver.Add(sum(rate[number] for number in on) <= free[link])
    at_least = {number: solver.Add(rate[number] >= flows[number].weight * level) for number in numbers}
    solver.Maximize(level)
    assert solver.Solve() == solver.OPTIMAL
    held = {number for number in numbers if abs(at_least[number].dual_value()) > 1e-9}
    assert held
    return level.solution_value(), held


def by_fractions(flows: Sequence[FlowSpec], capacities: Sequence[Fraction]) -> list[Fraction]:
    """Rates: raise one level until a cap is met or a link is full, stop these flows, begin again."""
    rates = [Fraction(0)] * len(flows)
    for members in _by_priority(flows):
        open_flows = set(members)
        while open_flows:
            limits = {number: _limit(number, flows, capacities, rates, open_flows) for number in open_flows}
            level = min(limits.values())
            stopped = {number for number, limit in limits.items() if limit == level}
            for number in stopped:
                rates[number] = level * Fraction(flows[number].weight)
            open_flows -= stopped
    return rates


def _limit(
    number: int,
    flows: Sequence[FlowSpec],
    capacities: Sequence[Fraction],
    rates: Sequence[Fraction],
    open_flows: set[int],
) -> Fraction:
    """The level at which this flow is stopped, if no other is stopped before."""
    cap = flows[number].cap_bytes_per_s
    limits = [] if cap == math.inf else [Fraction(cap) / Fraction(flows[number].weight)]
    for link in flows[number].links:
        on = [other for other, flow in enumerate(flows) if link in flow.links]
        taken = sum(rates[other] for other in on if other not in open_flows)
        weight = sum(Fraction(flows[other].weight) for other in on if other in open_flows)
        limits.append((capacities[link] - taken) / weight)
    return min(limits)


def _by_priority(flows: Sequence[FlowSpec]) -> Iterator[list[int]]:
    for priority in sorted({flow.priority for flow in flows}, reverse=True):
        yield [number for number, flow in enumerate(flows) if flow.priority == priority]


class PlainFabric:
    """A fabric that solves everything again at every event, in exact arithmetic, with no short cuts."""

    def __init__(self, capacities: Sequence[float]) -> None:
        self.capacities = [Fraction(capacity) for capacity in capacities]
        self.now = Fraction(0)
        self.specs: list[FlowSpec] = []
        self.begins: dict[int, Fraction] = {}
        self.left: dict[int, Fraction] = {}
        self.finished: dict[int, Fraction] = {}

    def start(self, spec: FlowSpec, now_s: float) -> int:
        self.run_to(Fraction(now_s))
        number = len(self.specs)
        self.specs.append(spec)
        self.begins[number] = self.now + Fraction(spec.latency_s)
        self.left[number] = Fraction(spec.size_bytes) if spec.links else Fraction(0)
        self.run_to(self.now)
        return number

    def abort(self, number: int, now_s: float) -> Fraction:
        """Bytes moved."""
        self.run_to(Fraction(now_s))
        size = Fraction(self.specs[number].size_bytes)
        if self.finished.pop(number, None) is not None:
            return size
        del self.begins[number]
        left = self.left.pop(number)
        return size - left if self.specs[number].links else Fraction(0)

    def set_capacity(self, link: int, bytes_per_s: float, now_s: float) -> None:
        self.run_to(Fraction(now_s))
        self.capacities[link] = Fraction(bytes_per_s)

    def rates(self) -> dict[int, Fraction]:
        on = [number for number, left in self.left.items() if left and self.begins[number] <= self.now]
        return dict(zip(on, by_fractions([self.specs[number] for number in on], self.capacities)))

    def run_to(self, now: Fraction | None) -> None:
        """Up to then, or until nothing happens any more."""
        while True:
            rates = self.rates()
            due = [self.now + self.left[number] / rate for number, rate in rates.items() if rate]
            due += [at for number, at in self.begins.items() if at > self.now or not self.left[number]]
            if not due or (now is not None and min(due) > now):
                break
            self._move(min(due), rates)
        if now is not None:
            self._move(now, rates)

    def _move(self, at: Fraction, rates: dict[int, Fraction]) -> None:
        for number, rate in rates.items():
            self.left[number] -= rate * (at - self.now)
        self.now = at
        for number in [one for one, left in self.left.items() if not left and self.begins[one] <= at]:
            self.finished[number] = at
            del self.left[number], self.begins[number]
