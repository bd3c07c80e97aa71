"""What ``servetwin plan`` says beside its answer, for a planner to act on."""

import re

import pytest

from servetwin.cli.plan import lines_of
from servetwin.planning.answer import plan
from servetwin.planning.candidate import PlanAnswer
from servetwin.planning.plan_words import plan_words
from servetwin.planning.text import as_data, head, remarks, rows, sentence, unable
from servetwin.report.metric_text import value_text
from servetwin.report.number_text import number
from servetwin.run.heartbeat import tasks_done
from serving.vocabulary.errors import UserError

LOAD = ("trace=poisson", "trace.requests=40", "trace.rate_per_s=5", "processes=1", "headroom=false")
ONE = (*LOAD, "model=llama3_8b", "gpu=h100", "model.tp=1", "slo.ttft_p99_ms=5000", "max_gpus=4")


def answer(*words: str) -> PlanAnswer:
    """The plan of these words."""
    return plan(plan_words(words))


def test_identical_requests_are_told_with_the_words_for_a_spread() -> None:
    found = answer(*ONE, "trace.lengths=1500x300")
    line = next(line for line in remarks(found) if line.startswith("all prompts"))
    assert line.startswith(
        "all prompts have 1,500 and all answers 300 tokens; real lengths vary and need more"
    )
    assert "write trace.lengths=azure_conv:1500x300" in line
    assert as_data(found)["same_lengths"] == [1500, 300]


def test_lengths_that_vary_go_without_saying() -> None:
    found = answer(*ONE, "trace.lengths=azure_conv:1500x300")
    assert not any(line.startswith("all prompts") for line in remarks(found))
    assert as_data(found)["same_lengths"] is None
    assert lines_of(found)


def test_rows_of_several_sources_name_them_and_the_word_for_one() -> None:
    layouts = ("model.precision=bf16,fp8", "all=true", "trace.lengths=azure_conv:1500x300")
    found = answer(*ONE, *layouts)
    kinds = {row["layout"]: row["step_times"] for row in as_data(found)["ranked"]}
    assert set(kinds.values()) == {"linear", "aiconfigurator"}
    assert head(found)[-1] == "step times"
    assert {row[0]: row[-1] for row in rows(found)} == kinds
    line = next(line for line in remarks(found) if line.startswith("step times are of several sources"))
    assert "engine.step_time=aiconfigurator gives all rows one source" in line


def test_one_source_has_no_column() -> None:
    found = answer(*ONE, "trace.lengths=azure_conv:1500x300")
    assert "step times" not in head(found)


def test_layouts_that_could_not_be_asked_are_counted_below_the_headline() -> None:
    layouts = ("engine.step_time=linear", "model.precision=bf16,fp8", "trace.lengths=azure_conv:1500x300")
    lines = lines_of(answer(*ONE, *layouts))
    assert lines[1].startswith(
        "  1 of 2 layouts could not be asked; h100, tp 1, model.precision=fp8: engine."
    )


def test_a_layout_without_memory_was_asked() -> None:
    words = (*LOAD, "model=llama3_70b", "gpu=h100", "model.tp=1,4", "slo.ttft_p99_ms=5000", "max_gpus=4")
    found = answer(*words, "engine.step_time=roofline", "trace.lengths=azure_conv:1500x300")
    assert found.ranked
    assert not any("could not be asked" in line for line in remarks(found))


@pytest.mark.parametrize(
    ("key", "scaler", "word"),
    [("target", "keda", "threshold"), ("threshold", "hpa", "target")],
)
def test_a_key_that_one_scaler_lacks_is_refused_before_a_run(key: str, scaler: str, word: str) -> None:
    words = ("system/scaler=hpa,keda", f"system.scaler.{key}=4", "system=llumnix_autoscaled")
    told = f"'system.scaler.{key}' for the chosen system/scaler={scaler}: write system.scaler.{word}, "
    with pytest.raises(UserError, match=re.escape(told)):
        plan_words([*ONE, *words])


def test_what_a_million_tokens_cost_follows_from_the_price_and_the_load() -> None:
    found = answer(*ONE, "trace.lengths=1500x300", "price.h100=2EUR")
    row = as_data(found)["ranked"][0]
    numbers = row["numbers"]
    hours = numbers["duration_s"] / 3600
    spent, millions = 2 * row["gpus"] * hours, 40 * 300 / 1e6
    assert row["cost_per_million_output_tokens"] == pytest.approx(spent / millions)
    assert row["cost_per_million_tokens"] == pytest.approx(spent / (millions * 1800 / 300))
    told = number(spent / millions)
    assert any(f"{told} EUR per million output tokens" in line for line in remarks(found))
    assert dict(zip(head(found), rows(found)[0], strict=True))["EUR/M output"] == told


def test_without_prices_tokens_cost_nothing_known() -> None:
    found = answer(*ONE, "trace.lengths=1500x300")
    assert as_data(found)["ranked"][0]["cost_per_million_tokens"] is None
    assert len(head(found)) == len(rows(found)[0])
    assert not any("per million" in line for line in remarks(found))


def test_a_layout_without_an_answer_says_what_is_missed_and_by_how_much() -> None:
    limits = ("slo.ttft_p99_ms=10", "slo.tpot_p99_ms=5000")
    words = [word for word in ONE if not word.startswith("slo.")]
    found = answer(*words, *limits, "trace.lengths=azure_conv:1500x300")
    p99 = found.unable[0].search.tried[4].numbers["ttft_ms.p99"]
    why = unable(found)[0][1]
    assert (
        why == f"4 GPUs: TTFT P99 {value_text('ttft_ms.p99', p99)}, {p99 / 10:.3g} times the 10.0 ms allowed"
    )


def test_an_end_without_a_size_says_what_is_missed_and_by_how_much() -> None:
    words = [word for word in ONE if not word.startswith(("slo.", "max_gpus="))]
    load = (*words, "max_gpus=1", "trace.lengths=azure_conv:1500x300", "engine.step_time=roofline")
    fast = answer(*load, "slo.ttft_p99_ms=9000", "all=true")
    p99 = fast.ranked[0].search.tried[1].numbers["ttft_ms.p99"]
    found = answer(
        *load,
        f"slo.ttft_p99_ms={p99 * 1.001:.6g}",
    )
    assert found.ends.mid == 1
    assert found.ends.high is None
    told = (
        r"no size with all step times at their high end \(1 GPU: TTFT P99 .*, 1\.\d+ times the .* allowed\)"
    )
    assert re.search(told, sentence(found)), sentence(found)


def test_without_a_terminal_lines_tell_how_far_a_plan_is(capsys: pytest.CaptureFixture[str]) -> None:
    plan(plan_words([*ONE, "trace.lengths=1500x300"]), None, tasks_done("planning", "runs", every_s=0))
    assert capsys.readouterr().err.splitlines()[:2] == ["planning: 1 runs", "planning: 2 runs"]
