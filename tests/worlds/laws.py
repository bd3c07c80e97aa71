"""Textbook queues, the systems that ServeTwin must turn into them, and when to believe that they agree.

One replica whose decode step costs the same whatever it holds, and whose prompts cost nothing, is a queue:
a seat (``max_num_seqs``) is a server, the output length is the service time. Time is told in mean services.

A service is 50 000 steps, so that what is discrete about it stays far below every interval here. A geometric
length has a squared coefficient of variation of 1 - 1/50 000 instead of 1. A request that finds a free seat
beside busy ones waits for the end of a step, and for one more if its prompt shares that step: 2/50 000 of a
service at most. A lone server has no such wait: it is idle, or it ends its service at the end of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, factorial, sqrt
from typing import Any, Final, Literal

import numpy as np

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill, PrefillFirst
from policies.dispatch import LeastOutstanding, RoundRobin
from servetwin.results.metrics import RunMetrics
from serving.composition import compose
from serving.controller import Controller
from serving.protocols.batch import Batcher
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from simcore.simulation import Simulation
from tests.worlds.toy_rows import ToyRows

Columns = dict[str, np.ndarray]

SERVICE_STEPS: Final = 50_000
STEP_NS: Final = 20_000
SERVICE_NS: Final = SERVICE_STEPS * STEP_NS
# No geometric draw of mean 50 000 comes near it, and memory never fills: nothing is cut short or preempted.
LONGEST_TOKENS: Final = 1 << 23
KV_BLOCKS: Final = 1 << 40

REPLICATIONS: Final = 20
# Two-sided 99.9 % points of Student's t by degrees of freedom: one interval in a thousand misses the truth;
# three where 20 means of so skewed a wait are not quite normal (counted on exact Lindley waits, 3000 seeds).
STUDENT_T_999: Final = {17: 3.965, 18: 3.922, 19: 3.883}


@dataclass(frozen=True, slots=True)
class System:
    """What ServeTwin is set up as. ``load`` is per server, and told as if ``slowdown`` were 1."""

    load: float
    servers: int = 1
    lengths: Literal["geometric", "constant"] = "geometric"
    batcher: Literal["prefill_first", "chunked"] = "prefill_first"
    replicas: int = 1
    dispatch: Literal["round_robin", "least_outstanding"] = "round_robin"
    sharing: bool = False  # a step costs in proportion to its sequences: one server that all share
    slowdown: float = 1.0  # how much longer a step takes than the theory is told

    @property
    def arrivals_per_service(self) -> float:
        """Arrival rate of the whole system."""
        return self.load * self.servers * self.replicas

    @property
    def warmup(self) -> int:
        """Arrivals in ten relaxation times 1 / (mu (1 - sqrt(load))^2) of M/M/1 (Cohen 1982)."""
        return ceil(10 * self.load / (1 - sqrt(self.load)) ** 2) * self.replicas


def draw(system: System, count: int, seed: int, replication: int) -> tuple[np.ndarray, np.ndarray]:
    """Poisson arrivals in ns, and service times in steps."""
    gaps, services = (np.random.default_rng([seed, replication, stream]) for stream in (0, 1))
    arrival_ns = gaps.exponential(SERVICE_NS / system.arrivals_per_service, count).cumsum()
    constant = system.lengths == "constant"
    steps = np.full(count, SERVICE_STEPS) if constant else services.geometric(1 / SERVICE_STEPS, count)
    return np.rint(arrival_ns).astype(np.int64), steps


def controller_of(system: System) -> Controller:
    """The control plane of a system."""
    # Shared by everyone, a server has a seat for each; the seats are more than ever came at these loads.
    seats = 1 << 20 if system.sharing else system.servers
    batcher = {"prefill_first": PrefillFirst, "chunked": ChunkedPrefill}[system.batcher]
    dispatcher = {"round_robin": RoundRobin, "least_outstanding": LeastOutstanding}[system.dispatch]
    replicas = [
        Replica(id=id, model="m", layers=LayerRange(0, 1), gpus=(id,), kv_blocks=KV_BLOCKS)
        for id in range(system.replicas)
    ]

    def batcher_for(replica: Replica) -> Batcher:
        return batcher(seats, 1 << 21)

    return compose(replicas, dispatcher(), batcher_for, admission=AdmitAll())


def step_costs(system: System) -> ToyRows:
    """A constant step, or one in proportion to the batch; a prompt costs 2^-24 ns, the least there is."""
    step = round(STEP_NS * system.slowdown) << FRACTION_BITS
    if system.sharing:
        return ToyRows(intercept=1, per_sequence=step, slope=0, mixed_intercept=1, per_token=0)
    return ToyRows(intercept=step, per_sequence=0, slope=0, mixed_intercept=1, per_token=0)


def simulate(
    system: System, arrival_ns: np.ndarray, steps: np.ndarray, controller: Controller | Watched | None = None
) -> RunMetrics:
    """Run to the end. The first token comes with the prompt, at no cost; each later one takes a step."""
    requests = (
        (Request(id, arrival, 1, LONGEST_TOKENS, "m"), service + 1)
        for id, (arrival, service) in enumerate(zip(arrival_ns.tolist(), steps.tolist()))
    )
    metrics = RunMetrics()
    driven: Any = controller or controller_of(system)
    Simulation(driven, requests, [step_costs(system)] * system.replicas, metrics).run()
    return metrics


class Watched:
    """A controller that also adds up over time, per replica, what its own books hold.

    Request-nanoseconds outstanding and waiting, and the nanoseconds with anything outstanding at all.
    """

    def __init__(self, controller: Controller) -> None:
        replicas = range(len(controller.engines))
        self.controller = controller
        self.elastic, self.step_counts = controller.elastic, controller.step_counts
        self.outstanding_area = [0 for _ in replicas]
        self.waiting_area = [0 for _ in replicas]
        self.occupied_ns = [0 for _ in replicas]
        self._since_ns = 0

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        """As the controller, after the time since the last event was added at the levels it had."""
        elapsed, self._since_ns = now_ns - self._since_ns, now_ns
        service = self.controller.services["m"]
        for replica, engine in self.controller.engines.items():
            outstanding = service.outstanding(replica)
            self.outstanding_area[replica] += elapsed * outstanding
            self.occupied_ns[replica] += elapsed if outstanding else 0
            self.waiting_area[replica] += elapsed * len(engine.waiting)
        return self.controller.handle(now_ns, event)


def wait_ns(columns: Columns) -> np.ndarray:
    """From arrival to admission, for the prompt takes no time."""
    return columns["first_token_ns"] - columns["arrival_ns"]


def sojourn_ns(columns: Columns) -> np.ndarray:
    """Time in system."""
    return columns["finish_ns"] - columns["arrival_ns"]


def in_system_area(columns: Columns, start_ns: int, end_ns: int) -> int:
    """The number in system integrated over a window, from when requests came and went; exact."""
    times = np.concatenate([columns["arrival_ns"], columns["finish_ns"]])
    changes = np.repeat([1, -1], len(columns["request"]))
    order = np.argsort(times, kind="stable")
    inside = np.clip(times[order], start_ns, end_ns)
    return int((changes[order].cumsum() * np.diff(inside, append=end_ns)).sum())


# Theory. Waits are in mean services; ``load`` is per server.


def erlang_c(servers: int, load: float) -> float:
    """P(wait > 0) in M/M/c (Erlang 1917)."""
    offered = servers * load
    all_busy = offered**servers / factorial(servers) / (1 - load)
    return all_busy / (sum(offered**n / factorial(n) for n in range(servers)) + all_busy)


def mmc_mean_wait(servers: int, load: float) -> float:
    """Mean wait in M/M/c; for one server the Pollaczek-Khinchine value load / (1 - load)."""
    return erlang_c(servers, load) / servers / (1 - load)


def mmc_tail(servers: int, load: float, t: float) -> float:
    """P(wait > t) in M/M/c; for one server load * exp(-(1 - load) t)."""
    return erlang_c(servers, load) * exp(-servers * (1 - load) * t)


def md1_mean_wait(load: float) -> float:
    """Mean wait in M/D/1: Pollaczek-Khinchine without variance, half that of M/M/1."""
    return load / (1 - load) / 2


def md1_tail(load: float, t: float) -> float:
    """P(wait > t) in M/D/1 (Erlang 1909); the alternating sum is for small t only."""
    at_most = sum((load * (k - t)) ** k / factorial(k) * exp(load * (t - k)) for k in range(int(t) + 1))
    return 1 - (1 - load) * at_most


def ekm1_wait_root(stages: int, load: float) -> float:
    """The root r in (0, 1) of GI/M/1 with Erlang(stages) gaps: P(wait > t) = r exp(-(1 - r) t)."""
    root = 0.0
    for _ in range(10_000):
        root = (stages * load / (stages * load + 1 - root)) ** stages
    return root


def lindley_wait_ns(arrival_ns: np.ndarray, service_ns: np.ndarray) -> np.ndarray:
    """Every wait at one FIFO server: the next is max(0, wait + service - gap) (Lindley 1952), unrolled."""
    served_before = np.concatenate([[0], np.cumsum(service_ns)[:-1]])
    return served_before + np.maximum.accumulate(arrival_ns - served_before) - arrival_ns


# Acceptance.


@dataclass(frozen=True, slots=True)
class Interval:
    """A 99.9 % confidence interval."""

    mean: float
    half_width: float

    def holds(self, value: float) -> bool:
        """Whether the value lies inside."""
        return abs(value - self.mean) <= self.half_width


@dataclass(frozen=True, slots=True)
class Sample:
    """What one replication shows after its warm-up, in mean services."""

    wait: np.ndarray
    sojourn: np.ndarray
    service: np.ndarray


def observe(system: System, counted: int, seed: int, replication: int) -> tuple[Sample, tuple[float, ...]]:
    """One replication from empty, and its controls: how far the means of its draws lie from the expected."""
    arrival_ns, steps = draw(system, system.warmup + counted, seed, replication)
    columns = simulate(system, arrival_ns, steps).columns()
    after = slice(system.warmup, None)
    sample = Sample(
        wait=wait_ns(columns)[after] / SERVICE_NS,
        sojourn=sojourn_ns(columns)[after] / SERVICE_NS,
        service=steps[after] / SERVICE_STEPS,
    )
    gap = arrival_ns[-1] / len(arrival_ns) / SERVICE_NS * system.arrivals_per_service - 1
    if system.lengths == "constant":
        return sample, (gap,)
    return sample, (gap, steps.mean() / SERVICE_STEPS - 1)


def controlled_interval(values: np.ndarray, controls: np.ndarray) -> Interval:
    """The mean of ``values`` where the controls are 0, by least squares (Lavenberg and Welch 1981).

    ``values`` (replications,), ``controls`` (replications, k): means of draws whose expectation is known, so
    that luck in the draws, which is most of the spread, is not held against the simulator.
    """
    design = np.column_stack([np.ones(len(values)), controls])
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    freedom = len(values) - design.shape[1]
    variance = ((values - design @ coefficients) ** 2).sum() / freedom
    at_zero = np.linalg.inv(design.T @ design)[0, 0]
    return Interval(float(coefficients[0]), STUDENT_T_999[freedom] * sqrt(variance * at_zero))


Statistic = Callable[[Sample], float]


def replicate(
    system: System, counted: int, statistics: dict[str, Statistic], seed: int
) -> dict[str, Interval]:
    """Each statistic over independent replications of ``counted`` requests after warm-up."""
    values: dict[str, list[float]] = {name: [] for name in statistics}
    controls = []
    for replication in range(REPLICATIONS):
        sample, control = observe(system, counted, seed, replication)
        controls.append(control)
        for name, statistic in statistics.items():
            values[name].append(statistic(sample))
    return {name: controlled_interval(np.array(v), np.array(controls)) for name, v in values.items()}


def misses(intervals: dict[str, Interval], theory: dict[str, float]) -> list[str]:
    """The statistics whose theory lies outside."""
    return [name for name, interval in intervals.items() if not interval.holds(theory[name])]


def table(title: str, intervals: dict[str, Interval], theory: dict[str, float]) -> str:
    """Theory beside the measured intervals, for people."""
    rows = [title]
    for name, interval in intervals.items():
        share = interval.half_width / theory[name]
        verdict = "" if interval.holds(theory[name]) else "   OUTSIDE"
        measured = f"{interval.mean:9.5f} +- {interval.half_width:.5f} ({share:5.1%})"
        rows.append(f"  {name:<20} theory {theory[name]:9.5f}   measured {measured}{verdict}")
    return "\n".join(rows)
