"""Interpolation of measured points: staircases over a count, ratios to a physical form over several."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Floats, Lattice
from hwmodels.step_times.fit import non_negative
from hwmodels.step_times.op_table import (
    decode_form,
    dense_by_tokens,
    fitted,
    mixed_form,
    prefill_form,
    refined,
    rising,
    seconds_by_count,
    segments,
)
from tests.worlds.toy_profile import (
    CACHED,
    CONTEXT,
    NEW,
    SEQUENCES,
    dense_s,
    lattice,
    mixed_s,
    prefill_s,
    toy_profile,
)

small_floats = st.integers(-30, 30).map(lambda tenths: tenths / 10)
lines = st.lists(st.integers(0, 5000), min_size=2, max_size=8, unique=True).map(sorted)


def noisy(table: Lattice, seed: int = 7) -> Lattice:
    """Every value off by up to 20 %."""
    noise = np.random.default_rng(seed).uniform(0.8, 1.2, table.values.shape)
    return Lattice(table.axes, table.values * noise)


# Least squares.


@given(st.lists(st.tuples(*[small_floats] * 4), min_size=4, max_size=9), st.integers(0, 2**32))
def test_least_squares_is_as_good_as_the_best_subset(rows: list[tuple[float, ...]], seed: int) -> None:
    """The constrained optimum is the best feasible one of the unconstrained optima of all subsets."""
    design = np.array(rows)
    target = np.random.default_rng(seed).uniform(0.5, 2.0, len(rows))
    found = non_negative(design, target)
    assert (found >= 0.0).all()
    best = float(np.square(target).sum())
    for chosen in product((False, True), repeat=4):
        free = np.array(chosen)
        trial = np.zeros(4)
        if free.any():
            trial[free] = np.linalg.lstsq(design[:, free], target, rcond=None)[0]
        if (trial >= 0.0).all():
            best = min(best, float(np.square(design @ trial - target).sum()))
    assert float(np.square(design @ found - target).sum()) <= best + 1e-6 * float(np.square(target).sum())


def test_least_squares_finds_exact_coefficients_and_cuts_negative_ones() -> None:
    design = np.array([(1.0, n, n * n) for n in (1.0, 2.0, 5.0, 9.0)])
    assert non_negative(design, design @ [1.0, 0.5, 0.25]) == pytest.approx([1.0, 0.5, 0.25])
    assert non_negative(design, design @ [1.0, -0.5, 0.25])[1] == 0.0
    assert non_negative(np.zeros((3, 2)), np.ones(3)).tolist() == [0.0, 0.0]


# Over one count.


def test_a_staircase_stays_on_its_step() -> None:
    found = seconds_by_count(toy_profile().tables.dense)
    assert found.tolist()[1:] == pytest.approx([dense_s(tokens) for tokens in range(1, 257)])


def test_a_tile_without_points_is_a_straight_line() -> None:
    found = seconds_by_count(Curve((64, 512), (1.0, 8.0)))
    assert found[288] == pytest.approx(4.5)
    assert found[500] == 8.0 and found[3] == 1.0


@given(lines.filter(lambda counts: counts[0] > 0), st.integers(0, 2**32))
def test_a_curve_keeps_its_points_and_stays_between_neighbours(counts: list[int], seed: int) -> None:
    seconds = np.random.default_rng(seed).uniform(1.0, 2.0, len(counts))
    found = seconds_by_count(Curve(tuple(counts), tuple(seconds.tolist())))
    assert len(found) == counts[-1] + 1
    assert found[counts].tolist() == pytest.approx(seconds.tolist())
    for (low, high), (one, other) in zip(pairwise(counts), pairwise(seconds)):
        between = found[low : high + 1]
        assert between.min() >= min(one, other) - 1e-12 and between.max() <= max(one, other) + 1e-12


def test_all_reduces_are_added_and_end_the_table() -> None:
    tables = toy_profile(all_reduce=Curve((1, 101), (0.0, 1.0))).tables
    found = dense_by_tokens(tables)
    assert len(found) == 102
    assert found[51] == pytest.approx(dense_s(51) + 0.5)


# Over several.


def test_a_surface_meets_every_measured_point() -> None:
    for form, tables in (
        (prefill_form, toy_profile().tables.prefill),
        (mixed_form, toy_profile().tables.mixed),
    ):
        table = noisy(tables[0])
        assert np.allclose(fitted(form, [table], "toy").on(*table.axes), table.values, rtol=1e-12)


def test_times_that_follow_the_form_are_exact_everywhere() -> None:
    found = fitted(mixed_form, toy_profile().tables.mixed, "toy").on([17, 99], [5, 700], [3, 11], [40, 999])
    axes = np.ix_([17.0, 99.0], [5.0, 700.0], [3.0, 11.0], [40.0, 999.0])
    assert np.allclose(found, mixed_s(*axes), rtol=1e-6)


def test_two_lattices_both_keep_their_points() -> None:
    one = noisy(lattice(prefill_s, NEW, CACHED), 1)
    other = noisy(lattice(prefill_s, (16, 24, 48, 128), (0, 100, 400, 1024)), 2)
    other.values[0, 0] = one.values[0, 0]
    other.values[3, 0] = other.values[0, 3] = other.values[3, 3] = np.nan
    surface = fitted(prefill_form, [one, other], "toy")
    assert np.allclose(surface.on(*one.axes), one.values, rtol=1e-7)
    known = ~np.isnan(other.values)
    assert np.allclose(surface.on(*other.axes)[known], other.values[known], rtol=1e-7)
    assert not np.isnan(surface.on(range(1, 129), range(0, 1025, 7))).any()
    assert surface.lines(0) == [16, 24, 32, 48, 64, 128]


def test_below_the_first_line_its_values_hold() -> None:
    surface = fitted(decode_form, [noisy(toy_profile().tables.decode[0])], "toy")
    assert surface.on([1, 2], [1, 9, 15])[:, :1] == pytest.approx(surface.on([1, 2], [16]))
    assert surface.on([1, 2], [15]) == pytest.approx(surface.on([1, 2], [16]))


def test_a_hole_is_unknown_around_it_and_nowhere_else() -> None:
    table = noisy(lattice(prefill_s, NEW, CACHED))
    table.values[3, 4] = np.nan
    surface = fitted(prefill_form, [table], "toy")
    assert np.isnan(surface.on([128], [257, 1024])).all() and np.isnan(surface.on([65, 128], [1024])).all()
    assert np.isnan(surface.on([100], [600])).all()
    assert not np.isnan(surface.on([16, 64], [0, 700, 1024])).any()
    assert not np.isnan(surface.on([128], [0, 256])).any()


def test_a_cell_without_its_far_corner_is_known_up_to_the_line_between_the_two_beside_it() -> None:
    table = lattice(prefill_s, NEW, CACHED)
    table.values[3, 4] = np.nan
    surface = fitted(prefill_form, [table], "toy")

    def exact(new: int, cached: int) -> float:
        return float(lattice(prefill_s, (new,), (cached,)).values[0, 0])

    for new, cached in ((65, 257), (65, 900), (127, 260), (90, 500)):
        assert surface.on([new], [cached])[0, 0] == pytest.approx(exact(new, cached), rel=0.02)
    table.values[3, 3] = np.nan
    surface = fitted(prefill_form, [table], "toy")
    assert np.isnan(surface.on([65, 90, 127], [257, 900])).all(), "two corners are not enough"
    assert not np.isnan(surface.on([65], [65, 200])).any()


def test_with_more_than_two_axes_every_corner_is_needed() -> None:
    table = lattice(mixed_s, NEW, CACHED, SEQUENCES, CONTEXT)
    table.values[3, 4, 4, 3] = np.nan
    surface = fitted(mixed_form, [table], "toy")
    assert np.isnan(surface.on([65], [257], [9], [257])).all()


@pytest.mark.parametrize(
    ("value", "says"), [(0.0, "a toy time of the profile is not above 0"), (np.nan, "no toy")]
)
def test_tables_without_times_are_refused(value: float, says: str) -> None:
    with pytest.raises(HardwareError, match=says):
        fitted(prefill_form, [Lattice(((1,), (0,)), np.full((1, 1), value))], "toy")


# Lines.


@given(lines, st.floats(1.1, 3.0))
def test_refined_lines_keep_the_lines_and_are_close(some: list[int], ratio: float) -> None:
    found = refined(some, ratio)
    assert set(some) <= set(found) and found == sorted(found)
    assert found[0] == some[0] and found[-1] == some[-1]
    # Rounding to whole counts moves a line by up to a half on either side.
    assert all(high + 16 <= ratio * (low + 16) + ratio + 1 for low, high in pairwise(found))


@given(lines)
def test_every_value_lies_in_its_segment(some: list[int]) -> None:
    found = segments(some)
    assert len(found) == some[-1] + 1
    for value, segment in enumerate(found):
        assert value <= some[segment + 1] and (value > some[segment] or segment == 0)


@given(st.lists(st.one_of(st.just(float("nan")), st.floats(0.0, 9.0)), min_size=1, max_size=9))
def test_rising_values_rise_and_those_that_did_stay(values: list[float]) -> None:
    given_values: Floats = np.array(values)
    found = rising(given_values, 0)
    assert (np.isnan(found) == np.isnan(given_values)).all()
    known = found[~np.isnan(found)]
    assert (np.diff(known) >= 0.0).all()
    assert np.array_equal(rising(np.sort(known), 0), known)
