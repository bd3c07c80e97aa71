"""Rates are the weighted max-min optimum: by linear programs, and by exact arithmetic."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.fabric.flow import FlowSpec
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.fabric_scenarios import leaf_spine, max_min_rates, random_flows
from tests.worlds.max_min_oracle import by_fractions, by_programs


@on_drawn_seeds(range(6))
def test_rates_equal_the_lexicographic_optimum(seed: int) -> None:
    pytest.importorskip("ortools")
    random = Random(seed)
    network = leaf_spine(random)
    flows = random_flows(random, network, 200, priorities=1 + seed % 3)
    rates = max_min_rates(flows, network.capacities)
    assert rates == pytest.approx(by_programs(flows, network.capacities), rel=1e-9, abs=0)


def test_rates_equal_exact_filling_on_a_leaf_spine() -> None:
    random = Random(7)
    network = leaf_spine(random)
    flows = random_flows(random, network, 60, priorities=2)
    exact = by_fractions(flows, [Fraction(capacity) for capacity in network.capacities])
    assert max_min_rates(flows, network.capacities) == pytest.approx(
        [float(rate) for rate in exact], rel=1e-12
    )


CAPACITIES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0, 1e9])
FLOWS = st.builds(
    FlowSpec,
    links=st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple),
    size_bytes=st.just(1.0),
    weight=st.sampled_from([1.0, 0.1, 3.0, 1e-6, 1e6]) | st.floats(0.01, 100),
    cap_bytes_per_s=st.sampled_from([float("inf"), 0.5, 2.0]) | st.floats(1e-3, 1e3),
    priority=st.integers(0, 2),
)


@given(st.lists(CAPACITIES, min_size=6, max_size=6), st.lists(FLOWS, min_size=1, max_size=12))
def test_rates_equal_exact_filling(capacities: list[float], flows: list[FlowSpec]) -> None:
    exact = by_fractions(flows, [Fraction(capacity) for capacity in capacities])
    rates = max_min_rates(flows, capacities)
    # What remains of a link after many flows is right to the rounding of what they took.
    rounding = 1e-12 * max(capacities)
    assert rates == pytest.approx([float(rate) for rate in exact], rel=1e-9, abs=rounding)


def test_worked_by_hand() -> None:
    flows = [
        FlowSpec((0,), 1.0),
        FlowSpec((0, 1), 1.0, weight=2.0),
        FlowSpec((1,), 1.0, cap_bytes_per_s=3.0),
        FlowSpec((1,), 1.0, priority=-1),
    ]
    assert max_min_rates(flows, [9.0, 20.0]) == [3.0, 6.0, 3.0, 11.0]
    assert max_min_rates([], []) == []


def test_the_last_flow_of_a_link_gets_what_the_light_ones_leave() -> None:
    """Sums of weights that differ by twelve orders of magnitude must not eat the light one."""
    flows = [FlowSpec((0, 1), 1.0, weight=1e6), FlowSpec((0,), 1.0, weight=1e-6)]
    assert max_min_rates(flows, [8.0, 2.0]) == [2.0, 6.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"links": (1, 1)},
        {"size_bytes": -1.0},
        {"size_bytes": float("inf")},
        {"weight": 0.0},
        {"cap_bytes_per_s": 0.0},
        {"latency_s": -1.0},
        {"kind": "letters"},
    ],
)
def test_a_flow_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"links": (0,), "size_bytes": 1.0}
    with pytest.raises(HardwareError):
        FlowSpec(**(right | wrong))  # type: ignore[arg-type]
