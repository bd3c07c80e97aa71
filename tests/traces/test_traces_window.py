"""Windows: what is in them, where rules find them, and what is refused."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.capacity import PromptLoad, RateFactor, prompt_load, rate_factor
from traces.errors import TraceError
from traces.load import load
from traces.window import RULES, Window, busiest, onset, time_window
from traces.workload import NS_PER_S, Workload


def workload(arrival_s: list[float], prompt_tokens: list[int] | None = None) -> Workload:
    arrival_ns = np.round(np.array(arrival_s) * NS_PER_S).astype(np.int64)
    prompt = np.array(prompt_tokens or [1] * len(arrival_s))
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt,
        output_tokens=np.ones_like(prompt),
        name="w",
        source="by hand",
    )


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(0, 60), st.integers(1, 60))
def test_a_window_holds_what_arrives_in_it_timed_from_its_start(
    seconds: list[int], start_s: int, length_s: int
) -> None:
    arrivals = sorted(seconds)
    inside = [s - arrivals[0] - start_s for s in arrivals if 0 <= s - arrivals[0] - start_s < length_s]
    whole = workload(arrivals)
    if not inside:
        with pytest.raises(TraceError, match="no request of w arrives"):
            time_window(start_s, length_s).of(whole)
        return
    part = time_window(start_s, length_s).of(whole)
    assert (part.arrival_ns / NS_PER_S).tolist() == inside
    assert part.labels == (f"window from {start_s} to {start_s + length_s} s",)


def test_silence_before_the_first_arrival_of_a_window_is_kept() -> None:
    part = Window(10, 20).of(workload([0, 18, 25, 40]))
    assert (part.arrival_ns / NS_PER_S).tolist() == [8, 15]


def test_busiest_counts_prompt_tokens_and_not_requests() -> None:
    tokens = [1] * 10 + [100, 100]
    arrivals = [*range(10), 52, 53, 80]
    assert busiest(workload(arrivals, [*tokens, 1]), 10) == Window(45.0, 10)


def test_onset_puts_the_steepest_rise_behind_its_start() -> None:
    arrivals = [*range(0, 40, 2), *np.arange(60, 70, 0.1).tolist(), 200]
    found = onset(workload(arrivals), 60)
    assert found.start_s == 55.0
    assert {"busiest": busiest, "onset": onset} == RULES


@pytest.mark.parametrize(
    ("start_s", "length_s", "part"),
    [(-1, 5, "window_start_s=-1"), (0, 0, "window_s=0"), (0, float("nan"), "window_s=nan")],
)
def test_bad_windows_are_refused(start_s: float, length_s: float, part: str) -> None:
    with pytest.raises(TraceError) as caught:
        time_window(start_s, length_s)
    assert part in str(caught.value)


@pytest.mark.parametrize("rule", list(RULES.values()))
def test_a_window_longer_than_the_trace_is_refused(rule: object) -> None:
    with pytest.raises(TraceError, match="longer than w, which lasts 100 s"):
        rule(workload([0, 100]), 101)  # type: ignore[operator]


def test_the_busiest_eight_minutes_of_the_azure_conversations() -> None:
    """reference: BlitzScale's AzureConv figures start at 1490 s."""
    if not os.environ.get("SERVETWIN_TRACES"):
        pytest.skip("the Azure traces are not here: set SERVETWIN_TRACES")
    assert busiest(load("azure_conv"), 480) == Window(1490.0, 480)


def test_prompt_load_by_hand() -> None:
    trace = workload([0, 1, 4, 9, 20], [10, 20, 30, 40, 100])
    assert prompt_load(trace) == PromptLoad(mean_tokens_per_s=10.0, peak_tokens_per_s=20.0)
    with pytest.raises(TraceError, match="at the same time"):
        prompt_load(workload([3, 3]))


def test_the_rate_factor_is_the_smaller_of_both_terms() -> None:
    load = PromptLoad(mean_tokens_per_s=100, peak_tokens_per_s=1000)
    assert rate_factor(load, 1000) == RateFactor(5.0, 0.9)
    assert rate_factor(load, 1000).factor == 0.9
    assert rate_factor(load, 1000, peak_prefill_tokens_per_s=10_000).factor == 5.0
    assert rate_factor(load, 1000, mean_share=None).factor == 0.9
    assert str(rate_factor(load, 1000, peak_share=None)) == "by mean 5"
    with pytest.raises(TraceError, match="neither"):
        rate_factor(load, 1000, None, None)
    with pytest.raises(TraceError, match=r"trace\.peak_share=-1"):
        rate_factor(load, 1000, 0.5, -1)


@pytest.mark.parametrize("start_s", [-1, float("nan"), float("inf"), 1e30])
def test_a_window_starts_at_0_or_later(start_s: float) -> None:
    with pytest.raises(TraceError, match=r"trace\.window_start_s=.* write a number from 0 to 1000000000"):
        time_window(start_s, 5)


def test_the_capacity_of_the_peak_is_a_number_above_0() -> None:
    with pytest.raises(TraceError, match="peak_prefill_tokens_per_s"):
        rate_factor(PromptLoad(1, 1), 1, peak_prefill_tokens_per_s=0)
