"""Rate profiles and the arrivals they bend: laws of counts, gaps and time-rescaling, and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import (
    PROCESSES,
    gamma_arrivals_ns,
    operational_times,
    profile_arrivals_ns,
    seconds_of,
)
from traces.synthetic.rate_profile import RateProfile, constant, diurnal, on_off, on_off_fixed, onsets


def profile_of(pieces: list[tuple[float, float, float]], repeats: bool = False) -> RateProfile:
    """A profile of (width in s, rate at its start, rate at its end)."""
    edges = np.concatenate(([0.0], np.cumsum([width for width, _, _ in pieces])))
    return RateProfile(edges, [start for _, start, _ in pieces], [end for _, _, end in pieces], repeats)


RATES = st.one_of(st.just(0.0), st.floats(0.01, 50))
PIECES = st.lists(st.tuples(st.floats(0.01, 20), RATES, RATES), min_size=1, max_size=6)


@st.composite
def profiles(draw: Any) -> RateProfile:
    pieces = [*draw(PIECES), (1.0, 1.0, draw(st.floats(0.5, 5)))]
    return profile_of(pieces, draw(st.booleans()))


@settings(max_examples=30)
@given(profiles(), st.lists(st.floats(0, 200), min_size=1, max_size=20))
def test_the_inverse_of_the_integral_is_its_inverse(profile: RateProfile, wanted: list[float]) -> None:
    expected = np.sort(np.array(wanted))
    times_s = profile.times_s(expected)
    assert (np.diff(times_s) >= -1e-9).all() and times_s[0] >= 0
    np.testing.assert_allclose(profile.expected(times_s), expected, rtol=1e-9, atol=1e-6)


@settings(max_examples=40)
@given(profiles(), st.floats(0.1, 60))
def test_the_integral_is_the_sum_of_the_rates(profile: RateProfile, end_s: float) -> None:
    times_s = (np.arange(40_000) + 0.5) * (end_s / 40_000)
    by_sum = float(profile.rate_per_s(times_s).sum() * end_s / 40_000)
    assert float(profile.expected(np.array([end_s]))[0]) == pytest.approx(by_sum, rel=5e-3, abs=5e-2)


def test_times_before_the_start_have_no_arrivals() -> None:
    profile = profile_of([(1.0, 2.0, 2.0)], repeats=True)
    assert profile.rate_per_s(np.array([-0.5, 0.5])).tolist() == [0.0, 2.0]
    assert profile.expected(np.array([-3.0, 0.0, 1.5, 4.0])).tolist() == [0.0, 0.0, 3.0, 8.0]


def test_a_profile_that_ends_at_zero_says_so() -> None:
    profile = profile_of([(2.0, 3.0, 3.0), (1.0, 0.0, 0.0)])
    assert profile.times_s(np.array([3.0, 6.0])).tolist() == [1.0, 2.0]
    refuses(TraceError, r"ends at 0 after 6 arrivals are expected", profile.times_s, np.array([6.5]))


@pytest.mark.parametrize(
    ("edges", "start", "end", "part"),
    [
        ([0, 1], [], [], "one start and end rate"),
        ([0, 1], [1], [1, 2], "one start and end rate"),
        ([0, 1, 2], [1], [1], "one start and end rate"),
        ([1, 2], [1], [1], "rise from 0"),
        ([0, 2, 1], [1, 1], [1, 1], "rise from 0"),
        ([0, math.nan], [1], [1], "rise from 0"),
        ([0, 1], [-1], [1], "from 0 to a billion"),
        ([0, 1], [math.nan], [1], "from 0 to a billion"),
        ([0, 1], [1e10], [1], "from 0 to a billion"),
        ([0, 1e10], [1], [1], "from 0 to a billion"),
        ([0, 1], [0], [0], "has no arrivals"),
    ],
)
def test_bad_profiles_are_refused(
    edges: list[float], start: list[float], end: list[float], part: str
) -> None:
    refuses(TraceError, part, RateProfile, np.array(edges), np.array(start), np.array(end))


PROFILES = {
    "constant": constant(4.0),
    "onsets": onsets(2.0, times_s=[5.0, 65.0]),
    "diurnal": diurnal(5.0, 1.8, 60.0, 20.0),
    "on_off_fixed": on_off_fixed(12.0, 0.0, 5.0, 15.0),
    "repeated pieces": profile_of([(3.0, 0.0, 9.0), (4.0, 2.0, 2.0), (2.0, 0.0, 0.0)], repeats=True),
}


@pytest.mark.parametrize("gap_cv", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", list(PROFILES))
def test_the_mean_count_is_the_integral(name: str, gap_cv: float) -> None:
    """Over many seeds, in a window from the start and in a later one, within five standard errors."""
    profile, generator = PROFILES[name], stream(3, f"law/{name}/{gap_cv}")
    found = []
    for _ in range(300):
        arrivals_s = profile_arrivals_ns(operational_times(generator, 1500, gap_cv), profile) / 1e9
        found.append([(arrivals_s < 7.0).sum(), ((arrivals_s >= 61.0) & (arrivals_s < 75.0)).sum()])
        assert arrivals_s[-1] > 75.0, "the window must not be cut"
    at = profile.expected(np.array([7.0, 61.0, 75.0]))
    wanted = np.array([at[0], at[2] - at[1]])
    error = np.std(found, axis=0) / math.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - wanted) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("gap_cv", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("name", list(PROFILES))
def test_rescaled_by_the_integral_arrivals_are_unit_rate(name: str, gap_cv: float) -> None:
    """The time-rescaling theorem: mapped back, gaps have mean 1 and the CV asked for."""
    profile = PROFILES[name]
    arrival_ns = profile_arrivals_ns(operational_times(stream(1, "rescale"), 40_000, gap_cv), profile)
    assert arrival_ns.dtype == np.int64 and (np.diff(arrival_ns) >= 0).all()
    gaps = np.diff(profile.expected(arrival_ns / 1e9))
    assert gaps.mean() == pytest.approx(1.0, rel=5 * gap_cv / math.sqrt(40_000))
    assert gaps.std() / gaps.mean() == pytest.approx(gap_cv, rel=0.06)
    lag = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    assert abs(lag) < 5 / math.sqrt(40_000), "gaps are independent"


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.sort(np.diff(operational_times(stream(2, "exponential"), 20_000, 1.0)))
    distance = np.abs((1 - np.exp(-gaps)) - (np.arange(len(gaps)) + 0.5) / len(gaps)).max()
    assert distance < 1.95 / math.sqrt(len(gaps))  # Kolmogorov-Smirnov at 0.1 %


@pytest.mark.parametrize("process", list(PROCESSES))
def test_fewer_requests_are_a_prefix_of_more(process: str) -> None:
    long, short = (PROCESSES[process](5, "prefix", requests) for requests in (3000, 70))
    assert long[:70].tolist() == short.tolist()
    other = PROCESSES[process](6, "prefix", 70)
    assert short.tolist() != other.tolist()


@pytest.mark.parametrize("process", ["poisson", "gamma", "on_off", "diurnal"])
def test_the_long_run_rate_is_the_one_asked_for(process: str) -> None:
    short = {"diurnal": {"period_s": 100.0, "peak_at_s": 10.0}, "on_off": {"on_s": 0.5, "off_s": 1.5}}
    options: dict[str, Any] = short.get(process, {})
    arrival_ns = PROCESSES[process](2, "rate", 60_000, rate_per_s=7.0, **options)
    assert 60_000 / (arrival_ns[-1] / 1e9) == pytest.approx(7.0, rel=0.08)


def test_bursts_and_spells_have_their_mean_lengths() -> None:
    profile = on_off(8.0, off_per_s=1.0, on_s=10.0, off_s=30.0, generator=stream(1, "spells"), cover=50_000.0)
    widths = np.diff(profile.edges_s)
    assert widths[0::2].mean() == pytest.approx(10.0, rel=0.1)
    assert widths[1::2].mean() == pytest.approx(30.0, rel=0.1)
    assert set(profile.start_per_s[0::2]) == {8.0} and set(profile.start_per_s[1::2]) == {1.0}
    longer = on_off(8.0, off_per_s=1.0, on_s=10.0, off_s=30.0, generator=stream(1, "spells"), cover=90_000.0)
    assert longer.edges_s[: len(profile.edges_s)].tolist() == profile.edges_s.tolist()


def test_no_request_comes_in_a_silent_spell() -> None:
    arrival_ns = PROCESSES["on_off"](1, "silent", 5000, rate_per_s=3.0, on_s=5.0, off_s=15.0, spells="fixed")
    assert (arrival_ns / 1e9 % 20.0 <= 5.0 + 1e-6).all()


def test_an_onset_climbs_holds_and_falls() -> None:
    profile = onsets(2.0, times_s=[5.0], factor=5.0, ramp_s=2.0, hold_s=10.0, decay_s=4.0)
    times_s = np.array([0.0, 4.9, 6.0, 7.0, 16.9, 19.0, 21.0, 1000.0])
    assert profile.rate_per_s(times_s).tolist() == pytest.approx([2, 2, 6, 10, 10, 6, 2, 2])
    assert profile.expected(np.array([21.0])).tolist() == pytest.approx([2 * 21 + 8 * (1 + 10 + 2)])


def test_an_onset_may_be_at_the_start_and_one_may_follow_at_once() -> None:
    profile = onsets(1.0, times_s=[0.0, 4.0], factor=3.0, ramp_s=1.0, hold_s=1.0, decay_s=2.0)
    assert profile.rate_per_s(np.array([0.0, 1.5, 4.0, 5.5])).tolist() == pytest.approx([1, 3, 1, 3])


def test_a_day_has_its_mean_and_peak() -> None:
    profile = diurnal(10.0, 1.5, 86_400.0, 43_200.0)
    rates = profile.rate_per_s(np.array([0.0, 43_200.0, 86_400.0 * 3 + 43_200.0]))
    assert rates.tolist() == pytest.approx([5, 15, 15], rel=1e-5)
    assert float(profile.expected(np.array([86_400.0]))[0]) == pytest.approx(864_000.0, rel=1e-12)


def test_a_longer_gamma_trace_begins_with_the_shorter() -> None:
    long, short = (gamma_arrivals_ns(stream(1, "x"), count, 2.0, 3.0) for count in (500, 20))
    assert long[:20].tolist() == short.tolist() and short[0] == 0


@pytest.mark.parametrize(
    ("process", "options", "part"),
    [
        ("poisson", {"rate_per_s": 0}, "rate_per_s=0"),
        ("poisson", {"rate_per_s": "fast"}, "rate_per_s='fast'"),
        ("poisson", {"rate_per_s": 1e-300}, "31 years"),
        ("poisson", {"rate_per_s": 5e-324}, "31 years"),
        ("poisson", {"rate_per_s": 1e300}, "a billion"),
        ("gamma", {"gap_cv": 1e4}, "gap_cv=10000.0"),
        ("gamma", {"gap_cv": "wide"}, "gap_cv='wide'"),
        ("on_off", {"on_s": -1}, "on_s=-1"),
        ("on_off", {"off_to_on": 1.5}, "off_to_on=1.5"),
        ("on_off", {"off_to_on": "x"}, "off_to_on='x'"),
        ("on_off", {"spells": "long"}, "spells='long'"),
        ("on_off", {"on_s": 1e-9, "off_s": 1e-9}, "too short"),
        ("onsets", {"onset_times_s": "5;65"}, "onset_times_s='5;65'"),
        ("onsets", {"onset_times_s": "5+20"}, "the onset at 20 s"),
        ("onsets", {"onset_times_s": "-5"}, "onset_times_s=-5.0"),
        ("onsets", {"onset_times_s": "nan"}, "onset_times_s=nan"),
        ("onsets", {"onset_times_s": "1e300"}, "onset_times_s=1e+300"),
        ("onsets", {"factor": 0}, "factor=0"),
        ("onsets", {"ramp_s": 0}, "ramp_s=0"),
        ("diurnal", {"peak_to_mean": 2.5}, "peak_to_mean=2.5"),
        ("diurnal", {"peak_at_s": math.inf}, "peak_at_s=inf"),
        ("diurnal", {"period_s": 0}, "period_s=0"),
    ],
)
def test_bad_parameters_are_refused(process: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError) as caught:
        PROCESSES[process](0, "bad", 10, **options)
    assert part in str(caught.value)


@pytest.mark.parametrize("requests", [0, -1, 2.5, True, 10**12])
def test_a_bad_number_of_requests_is_refused(requests: Any) -> None:
    refuses(TraceError, r"requests=", operational_times, stream(0, "bad"), requests, 1.0)


def test_a_list_of_seconds_may_be_empty_or_spaced() -> None:
    assert seconds_of("x", "") == () and seconds_of("x", " 5+ 6.5 +") == (5.0, 6.5)
