"""The least place and the highest factor, on functions whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.planning.busiest import busiest
from servetwin.planning.page import front
from servetwin.planning.search import RATE_STEP, first_true, highest_factor


@given(count=st.integers(0, 300), border=st.integers(0, 320), start=st.integers(0, 300))
def test_the_least_place_that_meets_is_found_from_anywhere(count: int, border: int, start: int) -> None:
    asked: list[int] = []

    def meets(place: int) -> bool:
        asked.append(place)
        return place >= border

    found = first_true(meets, count, min(start, max(count - 1, 0)))
    assert found == (border if border < count else None)
    assert len(asked) <= 2 * max(count, 1).bit_length() + 2
    assert all(0 <= place < count for place in asked)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 39))
def test_of_a_rough_border_an_answer_meets_and_the_place_below_does_not(
    meets: list[bool], start: int
) -> None:
    found = first_true(lambda place: meets[place], len(meets), min(start, len(meets) - 1))
    if found is None:
        assert not meets[-1]
    else:
        assert meets[found]
        assert found == 0 or not meets[found - 1]


@given(st.floats(1 / 60, 60))
def test_the_highest_factor_is_told_to_two_per_cent(border: float) -> None:
    found = highest_factor(lambda factor: factor <= border)
    assert found is not None
    assert found <= border < found * RATE_STEP * 1.001


def test_a_factor_that_nothing_meets_is_none_and_one_that_all_meet_is_the_most() -> None:
    assert highest_factor(lambda _: False) is None
    assert highest_factor(lambda _: True, most=4.0) == 4.0
    assert highest_factor(lambda factor: factor <= 0.9, least=1.0) is None


def test_the_busiest_stretch_is_the_one_with_most_arrivals() -> None:
    seconds = np.concatenate([np.arange(0, 100, 10.0), np.arange(50, 60, 0.5)])
    found = busiest(np.sort(seconds * 1e9).astype(np.int64), 10.0)
    assert found is not None
    assert (found.start_s, found.requests, found.rate_per_s) == (50.0, 21, 2.1)
    assert busiest(np.array([0, 1_000_000_000]), 10.0) is None


def test_the_front_leaves_out_what_a_cheaper_run_beats() -> None:
    assert front([(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0)], at_most=True) == [
        (1.0, 9.0), (2.0, 5.0), (4.0, 1.0),
    ]  # fmt: skip
    assert front([(1.0, 0.5), (2.0, 0.4), (3.0, 0.9)], at_most=False) == [(1.0, 0.5), (3.0, 0.9)]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_nothing_beyond_the_last_size_is_asked_for(most: int) -> None:
    asked: list[int] = []
    first_true(lambda place: bool(asked.append(place)), most, 0)
    assert max(asked) < most
