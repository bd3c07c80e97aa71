"""The closed form of a run against stepping through it."""

from hypothesis import given
from hypothesis import strategies as st

import hwmodels.step_times.rows
import serving.vocabulary.units
from simcore.replica.segment import steps_to_reach

fixed = st.integers(1, 1 << 60)


def cost_of_steps(first: int, slope: int, steps: int) -> int:
    """The sum of first + slope * i for i < steps, as simcore.replica.machine writes it."""
    return steps * first + slope * (steps * (steps - 1) >> 1)


@given(first=fixed, slope=st.integers(0, 1 << 40), steps=st.integers(0, 300))
def test_cost_is_the_sum_of_its_steps(first: int, slope: int, steps: int) -> None:
    assert cost_of_steps(first, slope, steps) == sum(first + slope * i for i in range(steps))


@given(first=fixed, slope=st.integers(0, 1 << 40), reach=st.integers(-(1 << 70), 1 << 75))
def test_steps_to_reach_is_the_first_boundary_not_before(first: int, slope: int, reach: int) -> None:
    steps = steps_to_reach(first, slope, reach)
    assert steps >= 1
    assert steps == 1 or cost_of_steps(first, slope, steps - 1) < reach
    assert cost_of_steps(first, slope, steps) >= reach


@given(first=fixed, slope=st.integers(0, 1 << 40), steps=st.integers(1, 10**6))
def test_a_boundary_is_reached_by_its_own_step(first: int, slope: int, steps: int) -> None:
    assert steps_to_reach(first, slope, cost_of_steps(first, slope, steps)) == steps


def test_fraction_bits_are_the_same_everywhere() -> None:
    assert hwmodels.step_times.rows.FRACTION_BITS == serving.vocabulary.units.FRACTION_BITS
