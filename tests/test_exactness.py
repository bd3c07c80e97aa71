"""Coalesced = step by step = the naive reference engine, to the nanosecond (DESIGN 7)."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.naive_engine import Case, run_naive
from tests.strategies import cases
from tests.world import Collected, RandomCuts, simulate


def assert_same(case: Case, recorder: Collected) -> None:
    """Everything a request can show, and every inter-token gap as a multiset."""
    gaps = []
    for outcome in run_naive(case):
        if outcome.rejected:
            assert outcome.request in recorder.refusals
            assert outcome.request not in recorder.done
            continue
        assert recorder.done[outcome.request] == (
            outcome.replica,
            outcome.output_tokens,
            outcome.token_ns[0],
            outcome.token_ns[-1],
            outcome.preemptions,
        )
        gaps.extend(later - earlier for earlier, later in zip(outcome.token_fixed, outcome.token_fixed[1:]))
    assert sorted(recorder.all_gaps) == sorted(gaps)


@given(case=cases())
@settings(max_examples=400, deadline=None)
def test_coalesced_equals_naive(case: Case) -> None:
    assert_same(case, simulate(case)[0])


@given(case=cases())
@settings(max_examples=200, deadline=None)
def test_exact_mode_equals_naive(case: Case) -> None:
    assert_same(case, simulate(case, coalesce=False)[0])


@given(case=cases(), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_cuts_at_random_boundaries_change_nothing(case: Case, seed: int) -> None:
    random = Random(seed)
    recorder, _, _ = simulate(case, wrap=lambda batcher: RandomCuts(batcher, random))
    assert_same(case, recorder)
