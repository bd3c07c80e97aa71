"""A scaled rate keeps the pattern in time, a thinned one gives what it must, compression is labelled."""

import os

import numpy as np
import pytest

from traces.counts import arrival_counts, count_statistics, expected_under_thinning
from traces.errors import TraceError
from traces.load import load
from traces.scaling import compress_time, scale_rate
from traces.synthetic.registry import azure_conv_like
from traces.workload import Workload

FACTORS = (2, 2.5, 4.7, 10)
SHARES = (0.1, 0.5, 0.8)


def source(name: str) -> Workload:
    if name == "azure_conv_like":
        return azure_conv_like(3, requests=6000)
    if not os.environ.get("SERVETWIN_TRACES"):
        pytest.skip("the Azure traces are not here: set SERVETWIN_TRACES")
    return load(name)


@pytest.mark.parametrize("name", ["azure_code", "azure_conv", "azure_conv_like"])
@pytest.mark.parametrize("factor", FACTORS)
def test_a_higher_rate_keeps_the_pattern_in_time(name: str, factor: float) -> None:
    trace = source(name)
    more = scale_rate(trace, factor, seed=7)
    assert len(more) == pytest.approx(factor * len(trace), abs=1)
    assert more.arrival_ns[0] == trace.arrival_ns[0] and more.arrival_ns[-1] == trace.arrival_ns[-1]
    before = count_statistics(arrival_counts(trace)).named()
    after = count_statistics(arrival_counts(more)).named()
    for statistic, value in before.items():
        if name == "azure_conv_like" and "lag" in statistic:
            assert after[statistic] == pytest.approx(value, abs=0.02)  # about zero: it has no pattern
        else:
            assert after[statistic] == pytest.approx(value, rel=0.05), statistic


@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
@pytest.mark.parametrize("share", SHARES)
def test_a_lower_rate_is_within_what_thinning_gives(name: str, share: float) -> None:
    trace = source(name)
    expected = expected_under_thinning(arrival_counts(trace), share)
    inside = [
        count_statistics(arrival_counts(scale_rate(trace, share, seed))).named()[statistic] in about
        for seed in range(10)
        for statistic, about in expected.items()
    ]
    assert sum(inside) >= 34  # of 40, each with probability 0.95


def test_copies_are_spread_evenly_over_the_rows() -> None:
    trace = azure_conv_like(1, requests=1000)
    more = scale_rate(trace, 2.3, seed=4)
    assert len(more) == pytest.approx(2300, abs=1)
    for half in (slice(0, 500), slice(500, 1000)):
        until_ns = trace.arrival_ns[half][-1]
        share = (more.arrival_ns <= until_ns).sum() / (trace.arrival_ns <= until_ns).sum()
        assert share == pytest.approx(2.3, rel=0.01)


def test_no_copy_is_later_than_the_next_arrival_or_a_second() -> None:
    trace = azure_conv_like(2, requests=500, rate_per_s=0.2)
    more = scale_rate(trace, 3, seed=1)
    before = np.searchsorted(trace.arrival_ns, more.arrival_ns, side="right") - 1
    late_ns = more.arrival_ns - trace.arrival_ns[before]
    assert late_ns.max() < 1_000_000_000
    assert (np.bincount(before, minlength=500) == 3).all()


def test_compressed_time_is_labelled_and_changes_nothing_else() -> None:
    trace = azure_conv_like(1, requests=50)
    fast = compress_time(trace, 4)
    assert fast.arrival_ns.tolist() == np.rint(trace.arrival_ns / 4).astype(int).tolist()
    assert fast.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert "time compressed 4x" in fast.labels[-1]
    assert compress_time(trace, 1) is trace
    for bad in (0, -1, float("inf")):
        with pytest.raises(TraceError, match=r"trace\.time_compression"):
            compress_time(trace, bad)
    with pytest.raises(TraceError, match="31 years"):
        compress_time(trace, 1e-15)
