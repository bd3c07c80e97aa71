"""The way of requests to a simulated engine and of tokens to their clients."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.step_times.engine_terms import engine_terms
from hwmodels.step_times.front_end import FrontEnd
from servetwin.assemble.front_end import FrontDoor, decoding_at_first_token
from servetwin.cli import main as cli
from servetwin.compare.at_the_engine import at_the_engine
from servetwin.compare.own_result import Result
from serving.vocabulary.closed_loop import ClosedLoop
from serving.vocabulary.request import Request

MS = 1_000_000
FRONT = FrontEnd(way_in_s=0.001, request_s=0.002, prompt_token_s=1e-5, way_out_s=0.003, running_s=1e-4)


def request(number: int, sent_ms: float, prompt_tokens: int = 100) -> Request:
    return Request(
        id=number,
        model="m",
        arrival_ns=round(sent_ms * MS),
        prompt_tokens=prompt_tokens,
        max_new_tokens=10,
    )


def entered_ms(front_end: FrontEnd, *sent: tuple[float, int]) -> list[tuple[int, float]]:
    """Requests of a trace by number and time, as they come to the engine."""
    door = FrontDoor(front_end, 1)
    at = np.array([round(at * MS) for at, _ in sent], dtype=np.int64)
    times = door.entered_ns(at, np.array([tokens for _, tokens in sent], dtype=np.int64))
    requests = [
        (replace(request(number, 0, tokens), arrival_ns=came), 5)
        for number, ((_, tokens), came) in enumerate(zip(sent, times.tolist(), strict=True))
    ]
    return [(one.id, one.arrival_ns / MS) for one, _ in door.in_order(iter(requests))]


def test_a_process_prepares_one_request_at_a_time() -> None:
    # 2 ms and 10 us a prompt token each, then 1 ms; the second waits for the first, the third for nobody.
    assert entered_ms(FRONT, (0, 100), (1, 200), (50, 100)) == [(0, 4.0), (1, 8.0), (2, 54.0)]


def test_above_what_a_process_prepares_waits_grow_without_end_and_below_they_do_not() -> None:
    each_ms = 3.0  # 2 ms and 10 us for each of 100 prompt tokens

    def wait_ms(gap_ms: float, requests: int) -> float:
        sent = [(number * gap_ms, 100) for number in range(requests)]
        last = entered_ms(FRONT, *sent)[-1][1]
        return last - sent[-1][0]

    assert [wait_ms(each_ms * 1.01, count) for count in (10, 100, 1000)] == pytest.approx([4.0] * 3)
    grown = [wait_ms(each_ms / 1.25, count) for count in (10, 100, 1000)]
    assert grown == pytest.approx([4.0 + 0.6 * (count - 1) for count in (10, 100, 1000)])


def test_tokens_delay_a_token_by_a_chunk_of_each_running_request_at_most() -> None:
    door = FrontDoor(FRONT, 1)
    # However fast a step: 0.1 ms for each request that decodes beside it, and no queue behind it.
    assert [door.way_out_ns(running) / MS for running in (1, 100, 1000)] == [3.1, 13.0, 103.0]


def test_with_two_processes_a_short_prompt_overtakes_a_long_one() -> None:
    two = FrontEnd(request_s=0.001, prompt_token_s=1e-5, api_servers=2)
    assert entered_ms(two, (0, 5000), (1, 100), (2, 100)) == [(1, 3.0), (2, 5.0), (0, 51.0)]


@given(
    sent=st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 4000)), max_size=30),
    request_s=st.sampled_from((0.0, 1.11e-3, 3e-3)),
    servers=st.integers(1, 3),
    instances=st.integers(1, 3),
)
@example(sent=[(0, 4000), (0, 1), (0, 1)], request_s=0.0, servers=1, instances=2)
@settings(max_examples=200)
def test_a_whole_trace_enters_as_its_requests_would_one_by_one(
    sent: list[tuple[int, int]], request_s: float, servers: int, instances: int
) -> None:
    """To the nanosecond, and in the order of a queue."""
    front_end = FrontEnd(request_s=request_s, prompt_token_s=2.5e-6, way_in_s=1.9e-3, api_servers=servers)
    whole, single = FrontDoor(front_end, instances), FrontDoor(front_end, instances)
    at_ns, tokens = np.array(sorted(sent), dtype=np.int64).reshape(-1, 2).T
    times = whole.entered_ns(at_ns, tokens).tolist()
    requests = [request(number, 0, count) for number, count in enumerate(tokens.tolist())]
    assert times == [single.enter(one, at) for one, at in zip(requests, at_ns.tolist(), strict=True)]
    arrivals = [(replace(one, arrival_ns=came), 5) for one, came in zip(requests, times, strict=True)]
    ordered = sorted(arrivals, key=lambda arrival: (arrival[0].arrival_ns, arrival[0].id))
    assert list(whole.in_order(iter(arrivals))) == ordered


@given(
    sent=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 3000)), max_size=12),
    servers=st.integers(1, 3),
)
@settings(max_examples=60)
def test_requests_enter_in_order_after_they_were_sent_and_none_is_lost(
    sent: list[tuple[int, int]], servers: int
) -> None:
    front_end = FrontEnd(request_s=0.002, prompt_token_s=1e-6, way_in_s=0.001, api_servers=servers)
    came = entered_ms(front_end, *((float(at), tokens) for at, tokens in sorted(sent)))
    assert sorted(number for number, _ in came) == list(range(len(sent)))
    times = [at for _, at in came]
    assert times == sorted(times)
    for number, at in came:
        begun, tokens = sorted(sent)[number]
        assert at >= begun + 1e3 * front_end.busy_s(tokens) + 1.0 - 1e-6


def test_an_entrance_that_is_taken_back_leaves_no_trace() -> None:
    door = FrontDoor(FRONT, 1)
    door.enter(request(0, 0), 0)
    first = door.enter(request(1, 5), 5 * MS)
    door.undo()
    assert door.enter(request(1, 5), 5 * MS) == first


def test_a_clients_next_request_comes_after_the_way_out_and_through_the_door() -> None:
    door = FrontDoor(FRONT, 1)
    loop = ClosedLoop(iter([(request(0, 0), 5), (request(1, 0), 5)]), [0], think_ns=10 * MS, door=door)
    taken = loop.take()
    assert taken is not None and taken[0].arrival_ns == 4 * MS
    loop.in_flight(100 * MS, 0)
    again = loop.take()
    # 3 ms and 0.1 ms for the request itself on the way out, 10 ms of thinking, 4 ms on the way in.
    assert again is not None and again[0].arrival_ns == round(117.1 * MS)
    assert door.sent_ns == {0: 0, 1: round(113.1 * MS)}


def test_requests_that_decode_at_a_first_token_are_those_of_its_replica() -> None:
    columns = {
        "replica": np.array([0, 0, 1, 0]),
        "first_token_ns": np.array([0, 5, 5, 20]),
        "finish_ns": np.array([10, 30, 30, 40]),
    }
    assert decoding_at_first_token(columns).tolist() == [1, 2, 1, 2]


def simulated(out: Path, *words: str) -> tuple[dict, pd.DataFrame]:
    load = ("trace=azure_conv_like", "trace.requests=40", "cluster=a100_x1", "uncertainty=off", "-q")
    assert cli.run(["simulate", *load, *words, f"out={out}"]) == 0
    return json.loads((out / "summary.json").read_text()), pd.read_parquet(out / "requests.parquet")


def test_ttft_is_the_clients_and_the_engines_is_beside_it(tmp_path: Path) -> None:
    numbers = ("way_in_s=0.001", "request_s=0.002", "prompt_token_s=0", "way_out_s=0.003", "running_s=0")
    words = [f"engine.front_end.{number}" for number in numbers]
    summary, rows = simulated(tmp_path / "run", *words, "trace.rate_per_s=0.05")
    around = rows.ttft_ms - rows.ttft_engine_ms
    assert np.allclose(around, 6.0)
    assert np.allclose(rows.entered_ns - rows.arrival_ns, 3 * MS)
    assert np.allclose(rows.e2e_ms, (rows.finish_ns - rows.arrival_ns) / MS + 3.0)
    assert summary["ttft_ms"]["mean"] == pytest.approx(summary["ttft_engine_ms"]["mean"] + 6.0)


def test_an_engine_without_a_front_end_has_one_ttft(tmp_path: Path) -> None:
    summary, rows = simulated(tmp_path / "run", "engine=vllm_v0")
    assert "ttft_engine_ms" not in summary and "entered_ns" not in rows
    assert "front_end" not in yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["engine"]


def test_a_file_of_an_engines_times_is_compared_at_the_engine(tmp_path: Path) -> None:
    summary, rows = simulated(tmp_path / "run")
    columns = {name: rows[name].to_numpy() for name in rows}
    ours = at_the_engine(Result(tmp_path, summary, columns, None))
    assert np.allclose(ours.columns["ttft_ms"], columns["ttft_engine_ms"])
    assert np.allclose(ours.columns["e2e_ms"], (columns["finish_ns"] - columns["entered_ns"]) / MS)
    assert ours.summary["ttft_ms"] == summary["ttft_engine_ms"]


def test_terms_follow_the_version_until_someone_writes_his_own(tmp_path: Path) -> None:
    def config(out: str) -> dict:
        return yaml.safe_load((tmp_path / out / "config.yaml").read_text())["engine"]

    simulated(tmp_path / "first")
    old, new = (engine_terms("vllm", version)["overhead"] for version in ("0.19.0", "0.30.0"))
    assert old["per_sequence_s"] != new["per_sequence_s"]
    assert config("first")["overhead"]["per_sequence_s"] == old["per_sequence_s"]
    assert cli.run(["simulate", f"config={tmp_path / 'first'}", "engine.version=0.30.0",
                    f"out={tmp_path / 'second'}", "-q"]) == 0  # fmt: skip
    assert config("second")["overhead"]["per_sequence_s"] == new["per_sequence_s"]
    simulated(tmp_path / "own", "engine.overhead.step_s=0.001")
    assert config("own")["overhead"]["source"].startswith("command line")
    assert "error_s" not in config("own")["overhead"]
    assert config("own")["front_end"]["source"] == engine_terms("vllm", "0.19.0")["front_end"]["source"]


def test_an_engine_without_terms_is_refused() -> None:
    with pytest.raises(HardwareError, match=r"engine_terms.yaml has no trtllm: write .* one of vllm"):
        engine_terms("trtllm", "1.0")


def test_a_declared_front_end_is_as_uncertain_as_other_declarations() -> None:
    low, high, why = FRONT.ends()
    assert (low.way_out_s, high.way_out_s) == (0.0015, 0.006) and why.startswith("x0.5 to x2")
    fitted = FrontEnd(way_out_s=0.001, error_s=0.002)
    assert [end.way_out_s for end in fitted.ends()[:2]] == [0.0, 0.003]


@pytest.mark.parametrize("clients", [(), ("trace.clients=4",)])
def test_a_refused_request_has_the_time_at_which_its_client_sent_it(
    tmp_path: Path, clients: tuple[str, ...]
) -> None:
    simulated(tmp_path / "all", *clients)
    _, rows = simulated(tmp_path / "some", *clients, "engine.max_model_len=1000")
    refused = pd.read_parquet(tmp_path / "some" / "unserved.parquet")
    assert len(refused) and len(rows)
    everyone = pd.read_parquet(tmp_path / "all" / "requests.parquet").set_index("request")
    if not clients:
        assert (refused.arrival_ns.to_numpy() == everyone.arrival_ns[refused.request].to_numpy()).all()
    assert (refused.end_ns > refused.arrival_ns).all()
