"""Metrics and log of a run: what is counted, as which text, and where it is found."""

import io
import json
import socket
from http.client import HTTPConnection

import pytest

from realexec.http.metrics_text import samples_of, values
from realexec.telemetry.counters import Counters
from realexec.telemetry.endpoint import Endpoint
from realexec.telemetry.exposition import Standing, exposition
from realexec.telemetry.log import JsonLog
from serving.vocabulary.actions import Assign, Migrate, Preempt, Reject, Run, Wake
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived, Lost, Observed, Ran, Streamed
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from tests.worlds.world import Collected

S, MS = 1_000_000_000, 1_000_000
ONE = Request(1, S, 30, 8, 'a "model"')
RUN = Run(0, 0, ((1, 0, 30),), True, 1, True, "a batch")


def test_what_happens_is_counted_and_handed_on() -> None:
    inner = Collected()
    counters = Counters(inner, None)
    recorder = counters.recorder()
    counters.write(S, Arrived(ONE), [Assign(1, 0, "first"), RUN])
    counters.write(2 * S, Ran(0, 0, 1, ()), [Preempt(0, 1, ""), Migrate(1, 0, 1, "committed", "")])
    counters.write(
        2 * S,
        Observed(
            replica=1, as_of_ns=S, running=3, waiting=1, used_blocks=5, total_blocks=10, block_tokens=16
        ),
        [Reject(2, "full")],
    )
    counters.write(3 * S, Streamed(1, ((1, 4),), (1,)), [])
    counters.write(4 * S, Lost(0, "gone"), [])
    recorder.gaps(30 * MS << FRACTION_BITS, 0, 1, 3)
    recorder.finished(ONE, 4, S + 40 * MS, S + 130 * MS, 1, 0)
    assert inner.done[1] == (1, 4, S + 40 * MS, S + 130 * MS, 0) and inner.all_gaps
    text = exposition(counters, lambda: {0: Standing(2, 1, 0.25), 1: Standing(0, 0, 0.5)})
    rows = samples_of(text)
    assert values(rows, "vllm:num_requests_running") == [2, 0]
    assert values(rows, "vllm:kv_cache_usage_perc") == [0.25, 0.5]
    assert values(rows, "vllm:num_preemptions_total") == [1, 0]
    assert values(rows, "servetwin:replica_lost") == [1, 0]
    assert values(rows, "servetwin:observed_age_seconds") == [3.0]
    for name, wanted in (
        ("vllm:generation_tokens_total", 4), ("vllm:prompt_tokens_total", 30),
        ("servetwin:rejected_total", 1), ("servetwin:migrations_total", 1), ("servetwin:events_total", 5),
        ("vllm:inter_token_latency_seconds_count", 3), ("vllm:request_success_total", 1),
    ):  # fmt: skip
        assert values(rows, name) == [wanted], name
    buckets = {
        one.labels["le"]: one.value for one in rows if one.name == "vllm:time_to_first_token_seconds_bucket"
    }
    assert (buckets["0.02"], buckets["0.04"], buckets["+Inf"]) == (0, 1, 1), "40 ms is in the bucket of 40 ms"
    assert {one.labels["model_name"] for one in rows} == {'a \\"model\\"'}


def test_metrics_are_found_at_a_port_and_nothing_else_is() -> None:
    with Endpoint(0, lambda: "up 1\n") as endpoint:
        port = int(endpoint.url.split(":")[2].partition("/")[0])
        found = {}
        for path in ("/metrics", "/health", "/else"):
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            answer = connection.getresponse()
            found[path] = answer.status, answer.read()
    assert found == {"/metrics": (200, b"up 1\n"), "/health": (200, b""), "/else": (404, b"")}


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match=r"metrics\.port=\d+ cannot be opened .*: write another"):
            Endpoint(taken.getsockname()[1], str)


def test_a_log_has_a_line_for_every_decision_and_none_for_passes() -> None:
    stream = io.StringIO()
    log = JsonLog(stream, None, lambda: 12.5)
    log.write(S, Arrived(ONE), [Assign(1, 0, "first"), RUN, Wake(5, "")])
    log.write(2 * S, Ran(0, 0, 3, (1,)), [])
    log.write(3 * S, Lost(0, "gone"), [Reject(2, "full")])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["level"]) for one in lines] == [
        ("Arrived", "info"),
        ("Assign", "info"),
        ("Finished", "info"),
        ("Lost", "error"),
        ("Reject", "warning"),
    ]
    assert lines[1] == {
        "time": 12.5, "run_s": 1.0, "level": "info", "event": "Assign", "request": 1, "replica": 0,
        "reason": "first",
    }  # fmt: skip
