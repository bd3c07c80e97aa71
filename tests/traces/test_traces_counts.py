"""Counts in bins: their statistics against definitions, and thinning against its closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.counts import arrival_counts, count_statistics, expected_under_thinning
from traces.errors import TraceError
from traces.streams import stream
from traces.workload import NS_PER_S, Workload


def workload(arrival_s: list[float]) -> Workload:
    ones = np.ones(len(arrival_s), dtype=np.int64)
    arrival_ns = np.round(np.array(arrival_s) * NS_PER_S).astype(np.int64)
    return Workload(arrival_ns=arrival_ns, prompt_tokens=ones, output_tokens=ones, name="w", source="by hand")


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.sampled_from([1.0, 2.5, 10.0, 1000.0]))
def test_counts_are_those_of_a_plain_loop(seconds: list[int], bin_s: float) -> None:
    arrivals = sorted(seconds)
    since = [second - arrivals[0] for second in arrivals]
    bins = max(1, int(since[-1] // bin_s))
    expected = [sum(bin_s * at <= second < bin_s * (at + 1) for second in since) for at in range(bins)]
    assert arrival_counts(workload(arrivals), bin_s).tolist() == expected


def test_statistics_of_a_sequence_worked_by_hand() -> None:
    found = count_statistics(np.array([0, 4, 0, 4, 0, 4]))
    assert (found.bins, found.mean, found.cv, found.peak_to_mean) == (6, 2.0, 1.0, 2.0)
    assert found.dispersion == 2.0
    assert found.autocorrelation == {1: pytest.approx(-5 / 6), 3: pytest.approx(-3 / 6)}
    assert found.named() == {
        "cv": 1.0,
        "peak/mean": 2.0,
        "autocorrelation lag 1": pytest.approx(-5 / 6),
        "autocorrelation lag 3": pytest.approx(-0.5),
    }


def test_what_is_undefined_is_none() -> None:
    assert count_statistics(np.array([3, 3, 3, 3, 3])).autocorrelation == {1: None, 3: None}
    assert count_statistics(np.array([1, 3])).autocorrelation[3] is None


def test_too_many_bins_are_refused() -> None:
    with pytest.raises(TraceError, match="bin_s=1e-09 makes"):
        arrival_counts(workload([0, 1e6]), 1e-9)
    with pytest.raises(TraceError, match="bin_s"):
        arrival_counts(workload([0, 1]), 0)


def bursty() -> np.ndarray:
    generator = stream(5, "test/bursty")
    level = np.repeat(generator.gamma(0.6, 50, size=200), 3)
    return generator.poisson(level)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_thinning_follows_its_closed_form(share: float) -> None:
    counts = bursty()
    mean, variance = counts.mean(), counts.var()
    thinned = share**2 * variance + share * (1 - share) * mean
    found = expected_under_thinning(counts, share)
    assert found["cv"].mean == pytest.approx(thinned**0.5 / (share * mean), rel=0.01)
    off = counts - mean
    for lag in (1, 3):
        covariance = (off[:-lag] * off[lag:]).sum() / len(counts)
        expected = share**2 * covariance / thinned
        assert found[f"autocorrelation lag {lag}"].mean == pytest.approx(expected, rel=0.03)


def test_thinned_counts_lie_within_the_interval_about_as_often_as_it_says() -> None:
    counts, share = bursty(), 0.4
    expected = expected_under_thinning(counts, share, seed=1)
    inside = 0
    for seed in range(200):
        thinned = stream(seed, "test/thinned").binomial(counts, share)
        named = count_statistics(thinned).named()
        inside += sum(named[name] in about for name, about in expected.items())
    assert 0.92 <= inside / 800 <= 0.98


def test_a_scaled_copy_is_not_taken_for_a_thinning() -> None:
    even = np.tile([20, 22], 100)
    copy = count_statistics(even // 2).named()
    assert copy["cv"] not in expected_under_thinning(even, 0.5)["cv"]
