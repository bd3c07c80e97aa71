"""How chunks of each kind of server are read, and how addresses and metrics are."""

import json
from typing import Any

import pytest

from realexec.http.client import address_of
from realexec.http.dialects import DIALECTS, UNKNOWN_TOKEN, Chunk, ServerLoad, Wish
from realexec.http.metrics_text import samples_of, values
from serving.vocabulary.errors import UserError

WISH = Wish("m", (1, 2), 5, "label")


def read(kind: str, *chunks: Any) -> list[Chunk]:
    reader = DIALECTS[kind].reader()
    return [reader.read(one if isinstance(one, bytes) else json.dumps(one).encode()) for one in chunks]


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "", "finish_reason": None} | fields]}


def test_token_ids_are_taken_where_they_are_and_else_from_log_probabilities() -> None:
    ids = choice(token_ids=[7, 8])
    words = choice(logprobs={"tokens": ["token_id:3", "token_id:4"]}, text="ab")
    assert [one.tokens for one in read("vllm", ids, words)] == [(7, 8), (3, 4)]


def test_pieces_of_text_count_as_tokens_and_usage_has_the_rest() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 4}}
    found = read("openai", choice(text="a"), choice(text=""), choice(text="bc"), usage, b"[DONE]")
    assert [len(one.tokens) for one in found] == [1, 0, 1, 2, 0] and found[-1].ended
    assert {token for one in found for token in one.tokens} == {UNKNOWN_TOKEN}


def test_an_end_that_is_none_is_a_fault() -> None:
    assert read("vllm", choice(finish_reason="abort"))[0].fault == "the server ended it: abort"
    assert read("vllm", choice(finish_reason="length", token_ids=[1]))[0] == Chunk((1,))
    assert read("vllm", {"error": {"message": "out of memory"}})[0].fault == "out of memory"
    with pytest.raises(ValueError, match="no chunk"):
        read("vllm", [1])


@pytest.mark.parametrize("cumulative", [True, False])
def test_sglang_gives_all_ids_or_the_new_ones(cumulative: bool) -> None:
    ids = ([5], [5, 6, 7], [5, 6, 7, 8]) if cumulative else ([5], [6, 7], [8])
    chunks = [
        {"output_ids": one, "meta_info": {"completion_tokens": count, "finish_reason": None}}
        for one, count in zip(ids, (1, 3, 4), strict=True)
    ]
    assert [one.tokens for one in read("sglang", *chunks)] == [(5,), (6, 7), (8,)]
    aborted = {"output_ids": [], "meta_info": {"completion_tokens": 0, "finish_reason": {"type": "abort"}}}
    assert read("sglang", aborted)[0].fault == "the server ended it: abort"


def test_a_wish_asks_for_as_many_tokens_as_it_says_and_no_fewer() -> None:
    vllm, sglang = DIALECTS["vllm"].body(WISH), DIALECTS["sglang"].body(WISH)
    assert (vllm["max_tokens"], vllm["ignore_eos"]) == (5, True) and "min_tokens" not in vllm
    assert vllm["prompt"] == sglang["input_ids"] == [1, 2] and sglang["rid"] == "label"
    assert sglang["sampling_params"]["max_new_tokens"] == 5


def test_load_is_summed_over_the_engines_of_a_server() -> None:
    text = """
# HELP vllm:num_requests_running Requests.
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 3.0
vllm:num_requests_waiting{engine="0"} 1
vllm:num_requests_waiting{engine="1"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="0"} 1.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="1"} 1.0
vllm:num_preemptions_total{engine="0"} NaN
broken line
"""
    samples = samples_of(text)
    assert values(samples, "none", "vllm:num_requests_running") == [2.0, 3.0]
    assert DIALECTS["vllm"].load(samples) == ServerLoad(
        running=5, waiting=1, used_share=0.375, total_blocks=200, block_tokens=16, preemptions=0
    )
    assert DIALECTS["sglang"].load(samples) is None and DIALECTS["openai"].load(samples) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://h:8000/v1", "http://h:8000"),
        ("h:8000", "http://h:8000"),
        ("https://api.example/llm/v1/", "https://api.example:443/llm"),
    ],
)
def test_addresses(text: str, told: str) -> None:
    assert str(address_of(text)) == told


@pytest.mark.parametrize("text", ["http://", "http://h:port", "http://h:8000?x=1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no address"):
        address_of(text)
