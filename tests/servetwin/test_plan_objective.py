"""Which requests an objective needs answered, and which layouts a plan names as equal."""

import json
from collections.abc import Mapping

import pytest

from servetwin.cli import main as cli
from servetwin.planning.answer import plan
from servetwin.planning.objective import Objective, beyond_context, limit_of
from servetwin.planning.plan_words import plan_words
from servetwin.planning.text import as_data, remarks, rows, unable
from serving.vocabulary.replica import BEYOND_CONTEXT, too_long
from serving.vocabulary.request import Request

TRACE = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=10")
WORDS = (*TRACE, "gpu=a100", "model.tp=1", "processes=1", "headroom=false", "max_gpus=4")
LATENCY = limit_of("slo.ttft_p99_ms", "800")
SHARE = limit_of("slo.attainment", "0.9")
GOOD = {"requests.finished": 95, "requests.failed": 0, "ttft_ms.p99": 300, "slo.attainment": 0.95}
CONTEXT = f"rejected_reasons.the prompt fills the context of 8192 tokens {BEYOND_CONTEXT}"
OTHER = "rejected_reasons.token bucket empty"


@pytest.mark.parametrize(
    ("numbers", "latency", "share"),
    [
        ({}, True, True),
        ({"requests.rejected": 5, OTHER: 5}, False, True),
        ({"requests.rejected": 5, CONTEXT: 5}, True, True),
        ({"requests.rejected": 5, CONTEXT: 4, OTHER: 1}, False, True),
        ({"requests.rejected": 50, OTHER: 50, "slo.attainment": 0.5}, False, False),
        ({"requests.failed": 1}, False, False),
        ({"requests.finished": 0}, False, False),
    ],
)
def test_a_rejected_request_is_one_that_is_not_served_well(
    numbers: Mapping[str, float], latency: bool, share: bool
) -> None:
    """Latencies know finished requests alone; attainment counts rejected ones as missed by itself."""
    found = GOOD | numbers
    assert Objective((LATENCY,)).met_by(found) == latency
    assert Objective((SHARE,)).met_by(found) == share
    assert Objective((LATENCY, SHARE)).met_by(found) == (latency and share)


@pytest.mark.parametrize("prompt", [9000, 8000])
def test_what_no_size_answers_is_known_by_its_reason(prompt: int) -> None:
    request = Request(0, 0, prompt, 500, "llama3_8b")
    numbers = {f"rejected_reasons.{too_long(request, 10**6, 8192)}": 3.0}
    assert beyond_context(numbers) == 3
    memory = {f"rejected_reasons.{too_long(request, 1000, None)}": 3.0}
    assert beyond_context(memory) == 0, "a larger instance answers it"


def test_a_plan_does_not_answer_by_rejecting(capsys: pytest.CaptureFixture[str]) -> None:
    bucket = ("system/admission=token_bucket", "system.admission.rate_per_s=2")
    assert cli.run(["plan", *WORDS, *bucket, "slo.ttft_p99_ms=800"]) == 1
    assert "requests rejected (token bucket empty) with 4 GPUs" in capsys.readouterr().out


def test_a_shorter_context_is_no_better_layout() -> None:
    """With less context fewer requests are served, by fewer GPUs: it is ranked behind, and a column tells."""
    found = plan(plan_words([*WORDS, "engine.max_model_len=1500,8192", "slo.ttft_p99_ms=800"]))
    assert [one.search.layout.words for one in found.ranked] == [
        ("engine.max_model_len=8192",), ("engine.max_model_len=1500",),
    ]  # fmt: skip
    assert int(rows(found)[0][-1]) < int(rows(found)[1][-1])


def test_equal_layouts_are_named() -> None:
    """Two names of one GPU, and caps that no run reaches."""
    words = [word for word in WORDS if word != "gpu=a100"]
    caps = "engine.max_num_seqs=240,256"
    found = plan(plan_words([*words, "gpu=a100_80g,a100", caps, "slo.ttft_p99_ms=800"]))
    first, *others = [
        f"{gpu}, tp 1, engine.max_num_seqs={cap}" for gpu in ("a100", "a100_80g") for cap in (240, 256)
    ]
    assert found.ranked[0].search.layout.name == first
    assert as_data(found)["equal"] == others and as_data(found)["tied"] == []
    assert any("equal to it" in line and all(name in line for name in others) for line in remarks(found))


def test_layouts_that_only_another_number_ranks_are_named_too() -> None:
    found = plan(plan_words([*WORDS, "engine.max_num_batched_tokens=1024,2048", "slo.ttft_p99_ms=800"]))
    assert found.ranked[0].search.gpus == found.ranked[1].search.gpus, "else nothing is tied"
    assert as_data(found)["equal"] == [] and as_data(found)["tied"] == [found.ranked[1].search.layout.name]
    assert any(line.startswith("as few GPUs") for line in remarks(found))


def test_equal_rates_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "engine.max_num_seqs=200,256", "slo.ttft_p99_ms=800", "find=rate", "gpus=1"]
    assert cli.run(["plan", *words, "json=true"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] == ["a100, tp 1, engine.max_num_seqs=256"]
    assert cli.run(["plan", *words]) == 0
    assert "not told apart from it by the search" in capsys.readouterr().out


def test_a_layout_that_is_dropped_as_an_equal_one_is_not_called_worse() -> None:
    caps = "engine.max_num_seqs=200,210,220,230,240,250"
    found = plan(plan_words([*WORDS, caps, "slo.ttft_p99_ms=800"]))
    why = dict(unable(found))
    assert len(why) == 2 and all("in every number as a100, tp 1" in one for one in why.values())
