"""A run says why an instance has several GPUs when nobody wrote how many."""

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.results.parallelism import gpus_of_an_instance

NOT_FIT = (
    "an instance is 4 GPUs (model.tp=4, the default of model=llama3_70b): "
    "141.1 GB of weights in bf16 do not fit one h100 (85.1 GB)"
)


def told(*words: str) -> str:
    return gpus_of_an_instance(load_config([*words, "out=none"], "simulate"))


def test_weights_that_do_not_fit_one_gpu() -> None:
    assert told("model=llama3_70b", "cluster=h100_x8") == NOT_FIT


def test_weights_that_leave_little_memory_for_kv() -> None:
    assert told("model=qwen3_32b", "cluster=h100_x8").endswith("leave 8.4 GB for KV on one h100 (85.1 GB)")


@pytest.mark.parametrize(
    "words",
    [
        ("model=llama3_8b",),
        ("model=llama3_70b", "model.tp=8"),
        ("model=bert_21b", "system=quart", "cluster=quart"),
    ],
)
def test_what_was_written_or_needs_no_reason(words: tuple[str, ...]) -> None:
    assert told(*words) == ""
