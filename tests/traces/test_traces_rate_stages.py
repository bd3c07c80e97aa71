"""Stages of rates: in words, from a file, and the laws of what is drawn along them."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.load import load
from traces.synthetic.rate_words import stages_of
from traces.workload import NS_PER_S, Workload


def drawn(rates: str, seed: int = 3, name: str = "poisson", **options: object) -> Workload:
    return load(name, seed=seed, rates=rates, **options)


@pytest.mark.parametrize("words, end_s, at_s, rates_per_s", [
    ("[15@60s,2@60s,10@60s]", 180, [0, 59, 60, 119, 120, 179], [15, 15, 2, 2, 10, 10]),
    ("15@60", 60, [0, 59], [15, 15]),
    ("[900/min@1m, 7200/h@0.5min]", 90, [30, 75], [15, 2]),
    ("[5@0-60s,3@120-180s]", 180, [30, 90, 150], [5, 0, 3]),
    ("[5@10-60s]", 60, [5, 30], [0, 5]),
    ("[2..10@80s,0@1h]", 3680, [0, 20, 40, 100], [2, 4, 6, 0]),
    ("[1@500ms,4rps@1-2min]", 120, [0.2, 30, 90], [1, 0, 4]),
])  # fmt: skip
def test_words_say_the_rate_at_every_time(
    words: str, end_s: float, at_s: list[float], rates_per_s: list[float]
) -> None:
    stages = stages_of(words)
    assert stages.end_s == end_s
    assert stages.profile.rate_per_s(np.array(at_s, dtype=float)) == pytest.approx(rates_per_s)


@pytest.mark.parametrize("name", ["poisson", "azure_conv_like", "gamma"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_stage_has_its_poisson_count_and_nothing_arrives_elsewhere(name: str, seed: int) -> None:
    cv = {} if name == "poisson" else {"gap_cv": 1.0}
    workload = drawn("[15@60s,0@10s,2@90s,10@200-260s]", seed, name, **cv)
    counts, _ = np.histogram(workload.arrival_ns / NS_PER_S, [0, 60, 70, 160, 200, 260, 1e9])
    for count, mean in zip(counts, [900, 0, 180, 0, 600, 0], strict=True):
        assert abs(count - mean) <= 4 * math.sqrt(mean)


def test_gaps_within_a_stage_have_the_stated_cv() -> None:
    arrival_ns = drawn("[50@200s,5@400s]", name="gamma", gap_cv=3.0).arrival_ns
    for part in (arrival_ns[arrival_ns < 200 * NS_PER_S], arrival_ns[arrival_ns >= 200 * NS_PER_S]):
        gaps = np.diff(part)
        assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_one_stage_is_the_plain_process_up_to_its_end(name: str) -> None:
    staged = drawn("[5@600s]", name=name)
    plain = load(name, seed=3, rate_per_s=5.0, requests=len(staged) + 1)
    assert plain.arrival_ns[-1] >= 600 * NS_PER_S
    assert np.abs(staged.arrival_ns - plain.arrival_ns[:-1]).max() <= 1
    assert staged.arrival_ns[-1] < 600 * NS_PER_S


def test_a_further_stage_and_other_lengths_change_no_earlier_arrival() -> None:
    short, long = drawn("[5@60s]"), drawn("[5@60s,50@60s]", lengths="512x128")
    assert long.arrival_ns[: len(short)].tolist() == short.arrival_ns.tolist()


def test_requests_end_the_trace_if_they_come_first() -> None:
    whole = drawn("[5@60s,50@60s]")
    first = drawn("[5@60s,50@60s]", requests=100)
    assert first.arrival_ns.tolist() == whole.arrival_ns[:100].tolist()
    assert len(drawn("[5@60s,50@60s]", requests=1_000_000)) == len(whole)


def test_the_source_draws_it_again() -> None:
    source = drawn("[5@60s, 2@30s]", name="azure_conv_like").source
    words = dict(word.split("=") for word in source.split()[2:])
    assert words == {"seed": "3", "rates": "[5@60s,2@30s]", "gap_cv": "1.09"}


@pytest.mark.parametrize("text, end_s, rates_per_s, told", [
    ("time,rate\n0,5\n60,20\n180,0\n", 180, {30: 5, 90: 20}, "'time' as time in s, 'rate'"),
    ("time,rps,note\n10,5,a\n70,20,b\n", 120, {30: 5, 90: 20}, "the last row holds 60 s"),
    ("minute,requests per minute\n0,300\n1,1200\n3,0\n", 180, {30: 5, 90: 20}, "in min"),
    ("ts_ms,requests\n0,300\n60000,2400\n180000,0\n", 180, {30: 5, 90: 20}, "from a row to the next"),
    ("\"time (s)\",req/s\r\n0,5\r\n60,20\r\n180,0\r\n", 180, {30: 5, 90: 20}, "'req/s'"),
    ("timestamp,qps\n2026-01-01T00:00:00Z,5\n2026-01-01T00:01:00+00:00,20\n2026-01-01T00:03:00Z,0\n",
     180, {30: 5, 90: 20}, "as dates"),
    ("created,rph\n1772442000,18000\n1772442060,72000\n1772442180,0\n", 180, {30: 5, 90: 20}, "in s"),
    ("time,rate\n1772442000000,5\n1772442060000,20\n1772442180000,0\n", 180, {30: 5, 90: 20}, "in ms"),
])  # fmt: skip
def test_a_file_says_the_rate_from_each_row_to_the_next(
    text: str, end_s: float, rates_per_s: dict[float, float], told: str, tmp_path: Path
) -> None:
    file = tmp_path / "rates.csv"
    file.write_bytes(text.encode())
    stages = stages_of(str(file))
    assert stages.end_s == pytest.approx(end_s)
    at_s = np.array(list(rates_per_s), dtype=float)
    assert stages.profile.rate_per_s(at_s) == pytest.approx(list(rates_per_s.values()))
    (label,) = stages.labels
    assert told in label and "rates.csv sha256=" in label
    assert label in drawn(str(file)).labels


@pytest.mark.parametrize("words, named", [
    ("[15]", r"'15' is no stage \(it has no length: 15@60s\)"),
    ("[15@]", "'15@' is no stage"),
    ("[fast@60s]", "RATE@LENGTH"),
    ("[-1@60s]", "no stage"),
    ("[5@60parsec]", "a time in 'parsec': write one of s"),
    ("[5/year@60s]", "a rate in '/year'"),
    ("[5@0-60s,3@30-90s]", "3@30-90s begins before the end of the stage before it, 60 s"),
    ("[5@60-60s]", "out of range"),
    ("[5@60-6s]", "out of range"),
    ("[5@2000000000s]", "31 years"),
    ("[0@60s]", "no stage has a rate above 0"),
    ("[0.0001@1s]", "ends before the first request arrives"),
    ("[1000000@1000s]", "more than 20000000 requests"),
    ("nothing.csv", "no stages and no file"),
])  # fmt: skip
def test_words_that_are_no_stages_are_refused(words: str, named: str) -> None:
    refuses(TraceError, named, drawn, words)


@pytest.mark.parametrize("text, named", [
    ("", "fewer than two rows"),
    ("time,rate\n0,5\n", "fewer than two rows.*time,rate"),
    ("when,what\n0,5\n1,5\n", "no column of times among 'when', 'what'"),
    ("time,what\n0,5\n1,5\n", "no column of rates among 'time', 'what'"),
    ("time,rate,rps\n0,5,5\n1,5,5\n", "two columns of rates"),
    ("time,timestamp,rate\n0,0,5\n1,1,5\n", "two columns of times"),
    ("time,rate\n0,5\n0,6\n", "line 3, column time: the time is not later"),
    ("time,rate\n0,5\n1,x\n", "line 3, column rate: 'x' is no rate"),
    ("time,rate\n0,-5\n1,2\n", "line 2, column rate"),
    ("time,rate\n0,5\nlater,2\n", "line 3, column time: 'later' is no time"),
    ("time,rate\n0,5\n1\n", "line 3: 1 cells"),
    ("time,rate\n2026-01-01T00:00:00Z,5\nsoon,2\n", "line 3, column time"),
    ("time,rate\n0,0\n1,0\n", "no stage has a rate above 0"),
    ("time,rate\n0,1e12\n1,0\n", "above a billion"),
])  # fmt: skip
def test_files_that_say_no_rates_are_refused(text: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(text)
    refuses(TraceError, named, drawn, str(file))
