"""Who is let in: the token bucket against its promise and against exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.admission import AdmitAll, TokenBucket
from serving.engine.fleet import Fleet
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

NS_PER_S = 10**9
REQUEST = Request(0, 0, 1, 1, "m")
FLEET = Fleet("m", [Replica(id=0, model="m", layers=LayerRange(0, 2), gpus=(0,), kv_blocks=4)])

rates = st.one_of(
    st.sampled_from([0.001, 0.5, 1.0, 3.0, 7.0, 1000.0]), st.integers(1, 10**7).map(lambda n: n / 1_000_000)
)
gaps_ns = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 5 * NS_PER_S))


def admitted(bucket: TokenBucket, now_ns: int) -> bool:
    refusal = bucket.admit(now_ns, REQUEST, FLEET)
    assert refusal in (None, "token bucket empty")
    return refusal is None


def times_of(gaps: list[int]) -> list[int]:
    times, now_ns = [], 0
    for gap in gaps:
        now_ns += gap
        times.append(now_ns)
    return times


@given(rate_per_s=rates, burst=st.integers(1, 5), gaps=st.lists(gaps_ns, max_size=40))
@settings(max_examples=50)
def test_no_window_admits_more_than_burst_and_rate_allow(
    rate_per_s: float, burst: int, gaps: list[int]
) -> None:
    bucket = TokenBucket(rate_per_s, burst)
    let_in = [now_ns for now_ns in times_of(gaps) if admitted(bucket, now_ns)]
    rate = Fraction(rate_per_s)
    for first, start_ns in enumerate(let_in):
        for last in range(first, len(let_in)):
            window_s = Fraction(let_in[last] - start_ns, NS_PER_S)
            assert last - first + 1 <= burst + rate * window_s


@given(sixty_fourths=st.integers(1, 10**5), burst=st.integers(1, 5), gaps=st.lists(gaps_ns, max_size=60))
@settings(max_examples=50)
def test_every_answer_is_that_of_exact_arithmetic(sixty_fourths: int, burst: int, gaps: list[int]) -> None:
    rate = Fraction(sixty_fourths, 64)  # a float holds it exactly, and so do millionths
    bucket = TokenBucket(float(rate), burst)
    tokens, last_ns = Fraction(burst), 0
    for now_ns in times_of(gaps):
        tokens = min(Fraction(burst), tokens + rate * Fraction(now_ns - last_ns, NS_PER_S))
        last_ns = now_ns
        expected = tokens >= 1
        tokens -= expected
        assert admitted(bucket, now_ns) == expected


@pytest.mark.parametrize("polls", [0, 1, 1000])
def test_asking_in_between_loses_no_fraction_of_a_token(polls: int) -> None:
    bucket = TokenBucket(3.0, 1)
    assert admitted(bucket, 0)
    for poll in range(polls):
        assert not admitted(bucket, 333_333_333 - polls + poll)
    assert not admitted(bucket, 333_333_333)
    assert admitted(bucket, 333_333_334)


def test_a_token_short_by_the_smallest_part_is_no_token() -> None:
    bucket = TokenBucket(0.000003, 1)
    assert admitted(bucket, 0)
    assert not admitted(bucket, 333_333_333_333_333)
    assert admitted(bucket, 333_333_333_333_334)


def test_a_bucket_is_full_at_the_start_and_never_fuller() -> None:
    bucket = TokenBucket(1.0, 3)
    assert [admitted(bucket, 0) for _ in range(4)] == [True, True, True, False]
    assert [admitted(bucket, 10**6 * NS_PER_S) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, 0.0000009, float("nan"), float("inf"), float("-inf")])
def test_a_rate_that_is_no_rate_is_refused(rate_per_s: float) -> None:
    with pytest.raises(ValueError, match="rate_per_s"):
        TokenBucket(rate_per_s, 1)


@pytest.mark.parametrize("burst", [0, -1])
def test_a_burst_below_one_is_refused(burst: int) -> None:
    with pytest.raises(ValueError, match="burst >= 1"):
        TokenBucket(1.0, burst)


def test_admit_all_admits() -> None:
    assert AdmitAll().admit(0, REQUEST, FLEET) is None
