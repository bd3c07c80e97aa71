"""Runs of a plan that stop once the objective is missed, and layouts that are not searched further."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.planning.answer import plan
from servetwin.planning.objective import Objective, limit_of
from servetwin.planning.plan_words import plan_words
from servetwin.planning.probe import probe
from servetwin.planning.stop_rule import ObjectiveRule, allowed_above
from servetwin.planning.text import as_data, not_searched, unable
from servetwin.results.metrics import QUANTILES, spread
from servetwin.run.simulate import execute, prepare

TRACE = ("trace=azure_conv_like", "trace.requests=200", "trace.rate_per_s=40")
PLAN = (*TRACE, "gpu=a100", "processes=1", "max_gpus=16")
RUNS = {
    "engine": ("cluster=a100_x2",),
    "front end": ("cluster=a100_x2", "engine.front_end.way_out_s=0.05", "engine.front_end.request_s=0.002"),
    "warm-up": ("cluster=a100_x2", "trace.warmup_requests=50"),
    "context": ("cluster=a100_x2", "engine.max_model_len=1500"),
    "one token": ("cluster=a100_x2", "engine.max_new_tokens=1"),
    "split": ("cluster=blitz_b", "system=distserve_full"),
}
KEYS = [
    f"{latency}_{statistic}"
    for latency in ("ttft", "tpot", "e2e")
    for statistic in ("mean", *QUANTILES, "max")
]


@given(
    values=st.lists(st.floats(0, 10), min_size=1, max_size=300),
    missing=st.integers(0, 20),
    limit=st.floats(0, 10),
    name=st.sampled_from([*QUANTILES, "max"]),
)
def test_more_values_above_a_limit_than_allowed_put_the_quantile_above_it(
    values: list[float], missing: int, limit: float, name: str
) -> None:
    """Whatever is still unknown: ``missing`` requests turn out to have no value."""
    above = sum(value > limit for value in values)
    allowed = allowed_above(QUANTILES.get(name, 1.0), len(values) + missing)
    found = spread(np.array(values))[name]
    assert found is not None
    if above > allowed:
        assert found > limit
    if missing == 0 and above < allowed:
        assert found <= limit


@cache
def numbers_of(kind: str) -> dict[str, float]:
    return probe((*TRACE, "uncertainty=off", *RUNS[kind]), "mid").numbers


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_just_meets_a_limit_is_not_stopped_and_gives_the_same(kind: str) -> None:
    """And no run stops that would meet: each limit is put at the number itself, and right below."""
    words, whole, stopped = (*TRACE, "uncertainty=off", *RUNS[kind]), numbers_of(kind), 0
    for key in KEYS if kind == "engine" else ("ttft_p99", "tpot_p95", "e2e_mean", "e2e_max"):
        metric = key.replace("_", "_ms.", 1)
        if (value := whole.get(metric)) is None:
            continue
        kept = probe(words, "mid", Objective((limit_of(f"slo.{key}_ms", repr(value)),)))
        assert (kept.stopped, kept.numbers) == ("", whole), key
        tighter = Objective((limit_of(f"slo.{key}_ms", repr(value * 0.9)),))
        missed = probe(words, "mid", tighter)
        assert not tighter.met_by(missed.numbers)
        stopped += bool(missed.stopped)
        assert not missed.stopped or missed.numbers == {}
    assert stopped >= 2


@pytest.mark.parametrize("kind", ["engine", "front end", "context"])
def test_attainment_counts_requests_that_can_no_longer_be_good(kind: str) -> None:
    words = (*TRACE, "uncertainty=off", *RUNS[kind], "slo.ttft_ms=2000", "slo.tpot_ms=60")
    whole = probe(words, "mid")
    share = whole.numbers["slo.attainment"]
    assert 0 < share < 1
    kept = probe(words, "mid", Objective((limit_of("slo.attainment", repr(share)),)))
    assert kept.numbers == whole.numbers
    above = probe(words, "mid", Objective((limit_of("slo.attainment", repr(share + 0.004)),)))
    assert above.stopped.startswith("slo.attainment < ")


def test_a_stopped_run_handles_fewer_events() -> None:
    objective = Objective((limit_of("slo.ttft_max_ms", "1"),))
    prepared = prepare(load_config([*TRACE, "cluster=a100_x2", "uncertainty=off", "out=none"], "simulate"))
    whole = execute(prepared)
    stopped = execute(replace(prepared, stops=partial(ObjectiveRule, objective)))
    assert stopped.stopped == "ttft_ms.max > 1.00 ms" and whole.stopped == ""
    assert stopped.events < whole.events / 2 and stopped.summary == {}


@pytest.mark.parametrize(
    "objective",
    [
        ("slo.ttft_p99_ms=800",),
        ("slo.tpot_mean_ms=25", "slo.e2e_p95_ms=20000"),
        ("slo.attainment=0.9", "slo.ttft_ms=400"),
    ],
)
def test_stopping_and_leaving_out_change_no_answer(objective: Sequence[str]) -> None:
    words = [*PLAN, "model.tp=1,2,4", *objective]
    quick, whole = plan(plan_words(words)), plan(plan_words([*words, "all=true"]))
    assert (quick.ends, quick.headroom) == (whole.ends, whole.headroom)
    assert quick.ranked[0].search.layout == whole.ranked[0].search.layout
    for one in quick.ranked:
        (same,) = (other for other in whole.ranked if other.search.layout == one.search.layout)
        assert one.search.gpus == same.search.gpus
        assert one.search.outcome is not None and same.search.outcome is not None
        assert one.search.outcome.numbers == same.search.outcome.numbers
    assert quick.runs <= whole.runs and not_searched(whole) == []
    for name, why in not_searched(quick):
        least = int(why.removeprefix("cannot need fewer than ").partition(" ")[0])
        (other,) = (one for one in whole.ranked if one.search.layout.name == name)
        assert least > quick.ends.mid and (other.search.gpus or 0) >= least


def test_what_is_left_out_does_not_depend_on_the_processes() -> None:
    words = [word for word in PLAN if word != "processes=1"] + ["model.tp=1,2,4", "slo.ttft_p99_ms=800"]
    one, two = (as_data(plan(plan_words([*words, f"processes={many}"]))) for many in (1, 2))
    assert one == two and one["not_searched_further"]


def test_a_dearer_layout_is_not_searched_further() -> None:
    words = (*PLAN[:-3], "gpu=a100,h100", "model.tp=1", "slo.ttft_p99_ms=300", "processes=1")
    found = plan(plan_words([*words, "find=cheapest", "price.a100=100", "price.h100=1", "headroom=false"]))
    assert found.ranked[0].search.layout.hardware == "h100"
    assert not_searched(found) == [["a100, tp 1", "cannot cost less than 700 per hour"]]


def test_a_layout_that_scales_is_searched_to_its_end() -> None:
    """Its cost is that of the GPUs it holds, which no size bounds from below."""
    words = ("gpu=blitz_b", "model.tp=1", "system=distserve_full,blitzscale", "slo.ttft_p99_ms=3000")
    rest = ("find=cheapest", "price.blitz_b=1", "processes=1", "max_gpus=32", "headroom=false")
    found = plan(plan_words([*TRACE, *words, *rest]))
    assert not [name for name, _ in not_searched(found) if "blitzscale" in name]


def test_what_fits_nowhere_is_refused_once_and_before_a_run() -> None:
    words = (*TRACE, "model=llama3_70b", "gpu=h100", "model.tp=1,4", "slo.ttft_p99_ms=2000")
    found = plan(plan_words([*words, "processes=1", "headroom=false", "max_gpus=64"]))
    (refused,) = (one.search for one in found.unable if one.search.layout.tp == 1)
    assert len(refused.tried) == 1 and "does not fit into 1 x h100" in refused.refused
    ran = sum(not outcome.refused for one in found.ranked for outcome in one.search.tried.values())
    ends = [found.details[end].tried for end in ("low", "high")]
    assert found.runs == ran + sum(map(len, ends))


def test_a_bound_is_not_shown_as_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", *PLAN, "model.tp=1", "slo.ttft_p99_ms=10", "max_gpus=32", f"out={tmp_path / 'p'}"]
    words.remove("max_gpus=16")
    assert cli.run(words) == 1
    assert "times the 10.0 ms allowed" in capsys.readouterr().out
    data = json.loads((tmp_path / "p" / "plan.json").read_text())
    smaller = {one["result"] for one in data["tried"] if one["gpus"] < 32}
    assert smaller == {"ttft_ms.p99 > 10.0 ms"}
    whole = plan(plan_words([*words[1:-1], "all=true"]))
    assert ">" not in unable(whole)[0][1]
