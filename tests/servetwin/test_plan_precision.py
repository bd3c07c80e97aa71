"""``servetwin plan`` says in which format weights and KV are, where they are not in 16 bits."""

import pytest

from servetwin.planning.answer import plan
from servetwin.planning.plan_words import plan_words
from servetwin.planning.text import as_data, remarks

ONE = (
    "trace=azure_conv_like", "trace.requests=50", "trace.rate_per_s=5", "model=llama3_8b",
    "gpu=h100", "model.tp=1", "engine.step_time=roofline", "slo.ttft_p99_ms=5000", "processes=1",
    "headroom=false", "max_gpus=4",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("model.precision=fp8", "engine.kv_cache_dtype=fp8"), "weights and KV: fp8, KV fp8"),
        (("model.precision=nvfp4",), "weights and KV: nvfp4, KV bf16"),
        (("model.precision=fp8", "find=rate", "gpus=1"), "weights and KV: fp8, KV bf16"),
    ],
)
def test_the_format_is_told(words: tuple[str, ...], told: str) -> None:
    words_of_plan = [word for word in ONE if not ("find=rate" in words and word.startswith("max_gpus"))]
    found = plan(plan_words([*words_of_plan, *words]))
    assert told in remarks(found)
    assert as_data(found)["precision"] == told.removeprefix("weights and KV: ")


def test_sixteen_bits_go_without_saying() -> None:
    found = plan(plan_words([*ONE]))
    assert not any("weights and KV" in line for line in remarks(found))
    assert as_data(found)["precision"] is None
