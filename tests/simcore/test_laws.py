"""The simulator against queueing theory.

Acceptance: theory lies in the 99.9 % interval over 20 replications, for the mean wait, the mean time in
system and points of the wait's distribution. It has negative controls: a system that is a few percent slower
must be told apart by it. ``make laws`` runs the long versions, with narrower intervals and 95 % load.
"""

from dataclasses import replace
from math import exp
from typing import Any, Literal

import numpy as np
import pytest

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill, PrefillFirst
from policies.dispatch import LeastOutstanding, RoundRobin
from servetwin.results.metrics import RunMetrics
from serving.composition import compose
from serving.engine.fleet import Dispatcher
from serving.protocols.batch import Batcher
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from simcore.simulation import Simulation
from tests.worlds import laws
from tests.worlds.laws import STEP_NS, Statistic, System
from tests.worlds.toy_rows import ToyRows

SEED = 20_25

QUEUES = {
    "M/M/1": System(0.0),
    "M/D/1": System(0.0, lengths="constant", batcher="chunked"),
    "M/M/4": System(0.0, servers=4),
    "M/M/4 chunked": System(0.0, servers=4, batcher="chunked"),
}


def statistics_and_theory(system: System) -> tuple[dict[str, Statistic], dict[str, float]]:
    """What is compared. Tails are at 1 and 2 times the mean wait of those who wait in M/M/c."""
    constant = system.lengths == "constant"
    servers, load = system.servers, system.load
    mean_wait = laws.md1_mean_wait(load) if constant else laws.mmc_mean_wait(servers, load)
    statistics: dict[str, Statistic] = {
        "mean wait": lambda sample: sample.wait.mean(),
        "mean time in system": lambda sample: sample.sojourn.mean(),
    }
    theory = {"mean wait": mean_wait, "mean time in system": mean_wait + 1}
    times = [0.0] if servers == 1 else []  # several seats: a wait for the end of a step is also above 0
    times += [0.5, 2.0] if constant else [1 / servers / (1 - load), 2 / servers / (1 - load)]
    for t in times:
        name = f"P(wait > {t:.3f})"
        statistics[name] = lambda sample, t=t: (sample.wait > t).mean()  # type: ignore[misc]
        theory[name] = laws.md1_tail(load, t) if constant else laws.mmc_tail(servers, load, t)
    return statistics, theory


def agreement(name: str, load: float, counted: int, slowdown: float = 1.0) -> tuple[list[str], str]:
    """(statistics that theory misses, the table)."""
    system = replace(QUEUES[name], load=load)
    statistics, theory = statistics_and_theory(system)
    intervals = laws.replicate(replace(system, slowdown=slowdown), counted, statistics, SEED)
    title = f"{name} at {load:.0%} load" + (f", steps x{slowdown}" if slowdown != 1 else "")
    shown = laws.table(title, intervals, theory)
    print(shown)
    return laws.misses(intervals, theory), shown


@pytest.mark.parametrize("load, counted", [(0.5, 1000), pytest.param(0.8, 1400, marks=pytest.mark.laws)])
@pytest.mark.parametrize("name", ["M/M/1", "M/D/1", "M/M/4"])
def test_queue_agrees_with_theory(name: str, load: float, counted: int) -> None:
    missed, shown = agreement(name, load, counted)
    assert not missed, shown


@pytest.mark.parametrize(
    "name, load, counted",
    [("M/M/1", 0.5, 1000), ("M/M/4", 0.5, 1000), pytest.param("M/M/1", 0.8, 1400, marks=pytest.mark.laws)],
)
def test_queue_5_percent_slower_is_told_apart(name: str, load: float, counted: int) -> None:
    missed, shown = agreement(name, load, counted, slowdown=1.05)
    assert "mean time in system" in missed, shown


@pytest.mark.laws
@pytest.mark.parametrize("load, counted", [(0.5, 8000), (0.8, 12_000), (0.95, 25_000)])
@pytest.mark.parametrize("name", ["M/M/1", "M/D/1", "M/M/4"])
def test_queue_agrees_with_theory_closely(name: str, load: float, counted: int) -> None:
    missed, shown = agreement(name, load, counted)
    assert not missed, shown


@pytest.mark.laws
def test_queue_under_chunked_prefill_agrees_with_theory_closely() -> None:
    missed, shown = agreement("M/M/4 chunked", 0.8, 12_000)
    assert not missed, shown


@pytest.mark.laws
@pytest.mark.parametrize(
    "name, load, counted",
    [
        ("M/M/1", 0.5, 8000),
        ("M/M/1", 0.8, 12_000),
        ("M/M/1", 0.95, 25_000),
        ("M/D/1", 0.8, 12_000),
        ("M/M/4", 0.8, 12_000),
    ],
)
def test_queue_2_percent_slower_is_told_apart(name: str, load: float, counted: int) -> None:
    missed, shown = agreement(name, load, counted, slowdown=1.02)
    assert "mean time in system" in missed, shown


def test_four_queues_are_not_one_with_four_servers() -> None:
    """Joining the shortest of four queues leaves servers idle while others wait: not M/M/4."""
    system = System(0.5, servers=4)
    statistics, theory = statistics_and_theory(system)
    four = replace(system, servers=1, replicas=4, dispatch="least_outstanding")
    intervals = laws.replicate(four, 1000, statistics, SEED)
    assert {"mean wait", "mean time in system"} <= set(laws.misses(intervals, theory))
    assert intervals["mean wait"].mean > theory["mean wait"]


def erlang_gaps(load: float, counted: int) -> tuple[list[str], str]:
    """Every fourth of a Poisson stream has Erlang(4) gaps, so round robin makes four E4/M/1 queues."""
    system = System(load, replicas=4)
    root = laws.ekm1_wait_root(4, load)
    statistics: dict[str, Statistic] = {
        "mean wait": lambda sample: sample.wait.mean(),
        "P(wait > 0)": lambda sample: (sample.wait > 0).mean(),
        "P(wait > 2)": lambda sample: (sample.wait > 2).mean(),
    }
    theory = {"mean wait": root / (1 - root), "P(wait > 0)": root, "P(wait > 2)": root * exp(2 * (root - 1))}
    intervals = laws.replicate(system, counted, statistics, SEED)
    shown = laws.table(f"round robin to 4, E4/M/1 at {load:.0%} load", intervals, theory)
    print(shown)
    return laws.misses(intervals, theory), shown


def test_round_robin_makes_erlang_gaps() -> None:
    missed, shown = erlang_gaps(0.5, 1000)
    assert not missed, shown


@pytest.mark.laws
def test_round_robin_makes_erlang_gaps_closely() -> None:
    missed, shown = erlang_gaps(0.8, 8000)
    assert not missed, shown


def shared(load: float, lengths: Literal["geometric", "constant"], counted: int) -> tuple[list[str], str]:
    """A step in proportion to its batch is processor sharing: only the mean of the lengths matters."""
    system = System(load, lengths=lengths, sharing=True)
    statistics: dict[str, Statistic] = {
        "mean time in system": lambda sample: sample.sojourn.mean(),
        "mean stretch": lambda sample: (sample.sojourn / sample.service).mean(),
    }
    theory = dict.fromkeys(statistics, 1 / (1 - load))
    intervals = laws.replicate(system, counted, statistics, SEED)
    shown = laws.table(f"processor sharing, {lengths} lengths at {load:.0%} load", intervals, theory)
    print(shown)
    return laws.misses(intervals, theory), shown


def test_batch_of_proportional_cost_shares_the_processor() -> None:
    missed, shown = shared(0.5, "constant", 1000)
    assert not missed, shown


@pytest.mark.laws
@pytest.mark.parametrize("lengths", ["constant", "geometric"])
def test_batch_of_proportional_cost_shares_the_processor_closely(
    lengths: Literal["geometric", "constant"],
) -> None:
    missed, shown = shared(0.8, lengths, 6000)
    assert not missed, shown


@pytest.mark.parametrize("batcher", ["prefill_first", "chunked"])
@pytest.mark.parametrize("load", [0.5, 0.95, 1.2])
def test_every_wait_follows_the_lindley_recursion(
    load: float, batcher: Literal["prefill_first", "chunked"]
) -> None:
    """One seat: every wait and every end to the nanosecond, and the busy time is the work brought."""
    system = System(load, batcher=batcher)
    arrival_ns, steps = laws.draw(system, 2000, SEED, 0)
    metrics = laws.simulate(system, arrival_ns, steps)
    columns = metrics.columns()
    service_ns = steps * STEP_NS
    expected = laws.lindley_wait_ns(arrival_ns, service_ns)
    assert np.array_equal(laws.wait_ns(columns), expected)
    assert np.array_equal(laws.sojourn_ns(columns), expected + service_ns)
    assert metrics.busy_ns == {0: service_ns.sum()}


def test_little_at_the_seats_and_in_the_queue() -> None:
    """What the controller's books hold over time is what requests tell of waits and services, exactly."""
    system = System(0.8, servers=4)
    arrival_ns, steps = laws.draw(system, 3000, SEED, 0)
    watched = laws.Watched(laws.controller_of(system))
    metrics = laws.simulate(system, arrival_ns, steps, watched)
    columns = metrics.columns()
    in_service = watched.outstanding_area[0] - watched.waiting_area[0]
    assert watched.waiting_area[0] == laws.wait_ns(columns).sum() > 0
    assert in_service == steps.sum() * STEP_NS
    assert metrics.busy_ns == dict(enumerate(watched.occupied_ns))


MS = 1_000_000 << FRACTION_BITS
US = 1_000 << FRACTION_BITS
# Close to an 8B model on a datacentre GPU: 8 ms a step, 50 us a prompt token, attention by context.
REALISTIC = ToyRows(8 * MS, 50 * US, US // 10, 8 * MS, 50 * US, US // 1000)


def realistic_requests(count: int, gap_ns: float) -> list[tuple[Request, int]]:
    """Mixed lengths; one in fifty asks for more memory than a replica has and is turned away."""
    rng = np.random.default_rng(SEED)
    arrival_ns = np.rint(rng.exponential(gap_ns, count).cumsum()).astype(np.int64).tolist()
    prompts = np.where(rng.random(count) < 0.02, 50_000, rng.integers(1, 1200, count)).tolist()
    outputs = np.minimum(rng.geometric(1 / 150, count), 600).tolist()
    return [
        (Request(id, arrival, prompt, 600, "m"), output)
        for id, (arrival, prompt, output) in enumerate(zip(arrival_ns, prompts, outputs))
    ]


def realistic_run(batcher: Batcher, dispatcher: Dispatcher, count: int) -> tuple[laws.Watched, RunMetrics]:
    replicas = [
        Replica(id=id, model="m", layers=LayerRange(0, 4), gpus=(id,), kv_blocks=500) for id in range(3)
    ]
    watched = laws.Watched(compose(replicas, dispatcher, lambda _: batcher, admission=AdmitAll()))
    metrics = RunMetrics()
    requests = realistic_requests(count, gap_ns=70e6)
    driven: Any = watched
    Simulation(driven, requests, [REALISTIC] * len(replicas), metrics).run()
    return watched, metrics


@pytest.mark.parametrize("dispatcher", [RoundRobin, LeastOutstanding])
@pytest.mark.parametrize("batcher", [PrefillFirst, ChunkedPrefill])
def test_little_on_replicas_that_preempt_and_refuse(
    batcher: type[PrefillFirst | ChunkedPrefill], dispatcher: type[RoundRobin | LeastOutstanding]
) -> None:
    """L = lambda W, exactly over the whole run for each replica, and within the edges for a window of it."""
    watched, metrics = realistic_run(batcher(32, 2048), dispatcher(), 3000)
    columns = metrics.columns()
    sojourn = laws.sojourn_ns(columns)
    assert columns["preemptions"].sum() > 20 and metrics.rejected_reasons.total() > 20
    for replica, area in enumerate(watched.outstanding_area):
        assert area == sojourn[columns["replica"] == replica].sum() > 0
    # Work conservation: no replica pauses while it has a request.
    for replica, occupied_ns in enumerate(watched.occupied_ns):
        assert metrics.busy_ns[replica] == occupied_ns
    finish = columns["finish_ns"]
    assert sum(watched.outstanding_area) == laws.in_system_area(columns, 0, int(finish.max()))
    start, end = (int(finish.max() * share) for share in (0.1, 0.9))
    arrived = (columns["arrival_ns"] >= start) & (columns["arrival_ns"] < end)
    mean_number = laws.in_system_area(columns, start, end) / (end - start)
    rate = arrived.sum() / (end - start)
    assert mean_number == pytest.approx(rate * sojourn[arrived].mean(), rel=0.01)


@pytest.mark.parametrize("load", [0.5, 0.8, 1.1])
def test_faster_steps_make_no_request_later_at_one_seat(load: float) -> None:
    for replication in range(3):
        slow, fast = (System(load, slowdown=slowdown) for slowdown in (1.0, 0.8))
        draws = laws.draw(slow, 500, SEED, replication)
        later, sooner = (laws.sojourn_ns(laws.simulate(s, *draws).columns()) for s in (slow, fast))
        assert (sooner <= later * 0.8).all()


@pytest.mark.parametrize("batcher", ["prefill_first", "chunked"])
@pytest.mark.parametrize("load", [0.5, 0.8, 1.1])
def test_faster_steps_make_the_mean_no_worse_at_four_seats(
    load: float, batcher: Literal["prefill_first", "chunked"]
) -> None:
    for replication in range(2):
        slow, fast = (System(load, 4, batcher=batcher, slowdown=slowdown) for slowdown in (1.0, 0.8))
        draws = laws.draw(slow, 500, SEED, replication)
        later, sooner = (laws.sojourn_ns(laws.simulate(s, *draws).columns()).mean() for s in (slow, fast))
        assert sooner <= 0.8 * later
