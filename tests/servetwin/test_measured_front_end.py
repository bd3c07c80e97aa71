"""TTFT at the engine and at the client in real runs."""

import numpy as np
import pytest

from realexec.http.engine_times import EngineTimes, engine_times
from realexec.http.metrics_text import samples_of
from servetwin.results.measured_front_end import MeasuredFrontEnd, at_the_engine
from servetwin.results.metrics import RunMetrics
from servetwin.run.http_front_end import front_end_of

PAGE = """
vllm:request_queue_time_seconds_sum{engine="0"} 1.5
vllm:request_queue_time_seconds_count{engine="0"} 30
vllm:request_prefill_time_seconds_sum{engine="0"} 4.0
vllm:request_queue_time_seconds_sum{engine="1"} 0.5
vllm:request_queue_time_seconds_count{engine="1"} 10
vllm:request_prefill_time_seconds_sum{engine="1"} 2.0
"""


def test_the_engine_of_own_workers_has_a_request_when_the_driver_takes_it() -> None:
    columns = {"request": np.array([3, 7]), "first_token_ns": np.array([9_000_000, 12_000_000])}
    found = at_the_engine(columns, {3: 2_000_000, 5: 1, 7: 11_500_000})
    assert found["entered_ns"].tolist() == [2_000_000, 11_500_000]
    assert found["ttft_engine_ms"].tolist() == [7.0, 0.5]
    assert at_the_engine(columns, {}) == {}


def test_queue_and_prefill_of_all_engines_count() -> None:
    assert engine_times(samples_of(PAGE)) == EngineTimes(40, 8.0, 6.0)
    assert engine_times(samples_of(PAGE.replace("prefill", "decode"))) is None
    assert EngineTimes(40, 8.0, 6.0) - EngineTimes(30, 5.0, 4.0) == EngineTimes(10, 3.0, 2.0)


def test_the_way_around_is_the_clients_less_the_engines_or_the_reason_is_told() -> None:
    known = MeasuredFrontEnd(12, 50.0, 42.5, "counters")
    assert known.section() == {
        "front_end": {"requests": 12, "source": "counters", "around_ms_mean": pytest.approx(7.5)}
    }
    assert known.ttft_section()["ttft_engine_ms"]["mean"] == 42.5
    assert known.ttft_section()["ttft_engine_ms"]["p99"] is None
    none = front_end_of((), 1.0, None, RunMetrics(), None)
    assert none.ttft_section() == {} and none.section()["front_end"]["missing"].startswith("no server counts")
    warm = front_end_of((), 1.0, EngineTimes(0, 0.0), RunMetrics(), RunMetrics())
    assert "warm-up" in warm.section()["front_end"]["missing"]
