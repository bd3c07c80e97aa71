"""The fabric against others that know no short cuts: exact arithmetic, and linear programs."""

import math
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import KINDS, LEAST_BYTES_PER_S, FlowSpec
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.fabric_scenarios import leaf_spine, max_min_rates, random_flows
from tests.worlds.max_min_oracle import PlainFabric, by_programs

LINKS = 5


@dataclass(frozen=True)
class Step:
    """After ``wait_s``: start the flow, else abort the flow of that place, else set the link's capacity."""

    wait_s: float
    flow: FlowSpec | None = None
    abort: int | None = None
    link: int = 0
    capacity: float = 0.0


# Sums of these are exact, so that what happens at one time there happens at one time here.
WAITS = st.sampled_from([0.0, 0.0, 0.5, 1.0]) | st.integers(1, 192).map(lambda ticks: ticks / 64)
SPECS = st.builds(
    FlowSpec,
    links=st.lists(st.integers(0, LINKS - 1), max_size=3, unique=True).map(tuple),
    size_bytes=st.sampled_from([0.0, 1.0, 8.0]) | st.floats(0.5, 40),
    kind=st.sampled_from(KINDS),
    weight=st.sampled_from([1.0, 1.0, 2.0, 0.3]),
    cap_bytes_per_s=st.sampled_from([math.inf, math.inf, 1.0, 2.7]),
    priority=st.sampled_from([0, 0, 1]),
    latency_s=st.sampled_from([0.0, 0.0, 0.5, 1.25]),
)
STEPS = st.one_of(
    st.builds(Step, WAITS, SPECS),
    st.builds(Step, WAITS, SPECS),
    st.builds(Step, WAITS, abort=st.integers(0, 20)),
    st.builds(
        Step,
        WAITS,
        link=st.integers(0, LINKS - 1),
        capacity=st.sampled_from([0.0, 1.0, 5.0, LEAST_BYTES_PER_S]) | st.floats(LEAST_BYTES_PER_S, 9),
    ),
)


@dataclass
class Ended:
    """How a fabric's run ended: when each flow finished, and what the aborted ones had moved."""

    finished: dict[int, float]
    moved_bytes: dict[int, float]


def play(fabric: Fabric, steps: list[Step], curious: bool) -> Ended:
    """Do the steps, repair all links, let the rest finish; ``curious`` asks for rates and checks between."""
    now_s, specs = 0.0, 0
    moved_bytes: dict[int, float] = {}
    for step in steps:
        now_s += step.wait_s
        if step.flow is not None:
            fabric.start(step.flow, now_s)
            specs += 1
        elif step.abort is None:
            fabric.set_capacity(step.link, step.capacity, now_s)
        elif specs and step.abort % specs not in moved_bytes:
            moved_bytes[step.abort % specs] = fabric.abort(step.abort % specs, now_s)
        if curious:
            fabric.check()
            fabric.next_completion_s()
    for link in range(LINKS):
        fabric.set_capacity(link, 4.0, now_s)
    finished = {}
    while (at_s := fabric.next_completion_s()) < math.inf:
        finished.update({done.flow: done.at_s for done in fabric.advance(at_s)})
        fabric.check()
    return Ended(finished, moved_bytes)


def play_plain(steps: list[Step]) -> Ended:
    """The same with exact arithmetic."""
    fabric = PlainFabric([4.0] * LINKS)
    now_s = 0.0
    moved_bytes: dict[int, float] = {}
    for step in steps:
        now_s += step.wait_s
        specs = len(fabric.specs)
        if step.flow is not None:
            fabric.start(step.flow, now_s)
        elif step.abort is None:
            fabric.set_capacity(step.link, step.capacity, now_s)
        elif specs and step.abort % specs not in moved_bytes:
            moved_bytes[step.abort % specs] = float(fabric.abort(step.abort % specs, now_s))
    for link in range(LINKS):
        fabric.set_capacity(link, 4.0, now_s)
    fabric.run_to(None)
    return Ended({number: float(at) for number, at in fabric.finished.items()}, moved_bytes)


def crowded(capacity: float) -> list[Step]:
    """Three flows on a link that then has this capacity; the second ends early."""
    spec = FlowSpec((0,), 8.0, weight=0.3)
    return [Step(0.0, spec), Step(0.0, spec), Step(0.0, spec), Step(0.5, link=0, capacity=capacity),
            Step(0.5, abort=1)]  # fmt: skip


def test_a_link_too_slow_for_shares_is_refused() -> None:
    """Halves of 5e-324 bytes/s are 0: two flows shared such a link and neither ever moved."""
    with pytest.raises(
        HardwareError, match="link 0 has a rate of 5e-324 bytes/s: write at least 1e-06, or 0"
    ):
        play(Fabric([4.0] * LINKS), crowded(5e-324), curious=True)
    with pytest.raises(HardwareError, match="link 1 has a rate of 5e-324 bytes/s"):
        Fabric([4.0, 5e-324])


@settings(max_examples=75)
@example(crowded(LEAST_BYTES_PER_S), True)
@example(crowded(LEAST_BYTES_PER_S), False)
@given(st.lists(STEPS, min_size=1, max_size=14), st.booleans())
def test_times_equal_those_of_exact_arithmetic(steps: list[Step], curious: bool) -> None:
    fabric = Fabric([4.0] * LINKS)
    found, exact = play(fabric, steps, curious), play_plain(steps)
    assert found.finished == pytest.approx(exact.finished, rel=1e-9, abs=0)
    assert found.moved_bytes == pytest.approx(exact.moved_bytes, rel=1e-9, abs=1e-9)
    specs = [step.flow for step in steps if step.flow is not None]
    for link in range(LINKS):
        for kind in KINDS:
            moved = [
                found.moved_bytes.get(number, spec.size_bytes)
                for number, spec in enumerate(specs)
                if link in spec.links and spec.kind == kind
            ]
            assert fabric.carried_bytes(link, kind) == pytest.approx(math.fsum(moved), rel=1e-12, abs=1e-12)
        assert fabric.flows_on(link) == () and fabric.used(link) == 0.0


@on_drawn_seeds(range(8))
def test_rates_at_every_event_are_those_of_solving_everything(seed: int) -> None:
    """200 flows with staggered starts on a leaf-spine network; a few moments by linear programs too."""
    random = Random(100 + seed)
    network = leaf_spine(random)
    fabric = Fabric(network.capacities)
    capacities = list(network.capacities)
    specs: dict[int, FlowSpec] = {}
    now_s = 0.0
    for moment, spec in enumerate(random_flows(random, network, 200, priorities=1 + seed % 2)):
        now_s += random.expovariate(40)
        for done in fabric.advance(now_s):
            del specs[done.flow]
        specs[fabric.start(spec, now_s)] = spec
        if seed >= 4 and random.random() < 0.1:
            link = random.randrange(len(capacities))
            capacities[link] = random.choice((0.0, 0.3, 1.0)) * network.capacities[link]
            fabric.set_capacity(link, capacities[link], now_s)
        if seed >= 4 and random.random() < 0.1:
            victim = random.choice(list(specs))
            fabric.abort(victim, now_s)
            del specs[victim]
        rates = [fabric.rate(number) for number in specs]
        rounding = 1e-12 * max(capacities)
        assert rates == pytest.approx(max_min_rates(list(specs.values()), capacities), rel=1e-9, abs=rounding)
        fabric.check()
        if moment % 40 == 39:
            pytest.importorskip("ortools")
            assert rates == pytest.approx(
                by_programs(list(specs.values()), capacities), rel=1e-9, abs=rounding
            )


@on_drawn_seeds(range(8))
def test_many_changes_at_one_moment_give_the_rates_of_solving_everything(seed: int) -> None:
    """Bursts of starts, aborts and changes of links on a small network, solved once for each moment."""
    random = Random(300 + seed)
    network = leaf_spine(random, 3, 2, 3)
    fabric, capacities = Fabric(network.capacities), list(network.capacities)
    specs: dict[int, FlowSpec] = {}
    now_s = 0.0
    for _ in range(12):
        now_s += random.expovariate(2)
        for done in fabric.advance(now_s):
            del specs[done.flow]
        for spec in random_flows(random, network, random.choice((3, 20, 60)), priorities=1 + seed % 3):
            specs[fabric.start(spec, now_s)] = spec
            if random.random() < 0.2:
                victim = random.choice(list(specs))
                fabric.abort(victim, now_s)
                del specs[victim]
            if random.random() < 0.05:
                link = random.randrange(len(capacities))
                capacities[link] = random.choice((0.0, 0.3, 1.0)) * network.capacities[link]
                fabric.set_capacity(link, capacities[link], now_s)
        rates = [fabric.rate(number) for number in specs]
        assert rates == pytest.approx(
            max_min_rates(list(specs.values()), capacities), rel=1e-9, abs=1e-12 * max(capacities)
        )
        fabric.check()


def test_a_burst_costs_as_much_per_flow_as_a_few_flows() -> None:
    """It was quadratic: each of 4,000 cost 8 times as much as each of 500."""
    few, many = (min(burst_s(count) for _ in range(3)) / count for count in (500, 4_000))
    assert many < 3 * few


def burst_s(count: int) -> float:
    """CPU seconds of so many equal flows that start at one moment on one link, until all have ended."""
    fabric, spec = Fabric([1.0]), FlowSpec((0,), 1.0)
    began_s = process_time()
    for _ in range(count):
        fabric.start(spec, 0.0)
    assert len(fabric.advance(fabric.next_completion_s())) == count
    return process_time() - began_s


def test_bytes_are_the_integral_of_rates() -> None:
    """Summed from outside: rate times time between every two events, against each flow's size."""
    random = Random(5)
    network = leaf_spine(random, 3, 2, 3)
    fabric = Fabric(network.capacities)
    flows = random_flows(random, network, 80)
    starts = sorted(random.uniform(0, 1) for _ in flows)
    moved = [0.0] * len(flows)
    alive: set[int] = set()
    finished = 0
    while finished < len(flows):
        rates = {number: fabric.rate(number) for number in alive}
        at_s = min(fabric.next_completion_s(), starts[0] if starts else math.inf)
        for number, rate in rates.items():
            moved[number] += rate * (at_s - fabric.now_s)
        for done in fabric.advance(at_s):
            alive.remove(done.flow)
            finished += 1
        if starts and at_s == starts[0]:
            starts.pop(0)
            alive.add(fabric.start(flows[len(flows) - len(starts) - 1], at_s))
    assert moved == pytest.approx([flow.size_bytes for flow in flows], rel=1e-9)


def test_the_exact_fabric_agrees_with_a_closed_form() -> None:
    plain = PlainFabric([10.0])
    plain.start(FlowSpec((0,), 10.0), 0.0)
    plain.start(FlowSpec((0,), 30.0), 0.0)
    plain.run_to(None)
    assert plain.finished == {0: Fraction(2), 1: Fraction(4)}
