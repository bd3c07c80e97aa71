"""What ``servetwin plan`` says beside its answer, for a planner to act on."""

from servetwin.cli.plan import lines_of
from servetwin.planning.answer import plan
from servetwin.planning.candidate import PlanAnswer
from servetwin.planning.plan_words import plan_words
from servetwin.planning.text import as_data, remarks

LOAD = ("trace=poisson", "trace.requests=40", "trace.rate_per_s=5", "processes=1", "headroom=false")
ONE = (*LOAD, "model=llama3_8b", "gpu=h100", "model.tp=1", "slo.ttft_p99_ms=5000", "max_gpus=4")


def answer(*words: str) -> PlanAnswer:
    """The plan of these words."""
    return plan(plan_words(words))


def test_identical_requests_are_told_with_the_words_for_a_spread() -> None:
    found = answer(*ONE, "trace.lengths=1500x300")
    line = next(line for line in remarks(found) if line.startswith("all prompts"))
    assert line.startswith("all prompts have 1,500 and all answers 300 tokens; real lengths vary and need more")
    assert "write trace.lengths=azure_conv:1500x300" in line
    assert as_data(found)["same_lengths"] == [1500, 300]


def test_lengths_that_vary_go_without_saying() -> None:
    found = answer(*ONE, "trace.lengths=azure_conv:1500x300")
    assert not any(line.startswith("all prompts") for line in remarks(found))
    assert as_data(found)["same_lengths"] is None
    assert lines_of(found)
