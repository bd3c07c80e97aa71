"""servetwin reproduce quart: rows from real runs of stages, and what is not there yet is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.common.outcomes import Outcomes, RunOutcome
from experiments.common.runs import lacking
from experiments.common.set_up import Case
from experiments.quart import beyond, fig02, systems_figures
from experiments.quart.registry import QUART as FIGURES
from experiments.quart.set_ups import BASELINES, MODELS, QUART, SYSTEMS, gamma, system
from experiments.quart.sweeps import sweeps_of
from servetwin.cli import main as cli

FEW = 60


def outcome(latency_ms: float, queue: float, requests: int = FEW) -> RunOutcome:
    """A run in which all requests take the same time."""
    times = np.full(requests, latency_ms)
    quantiles = dict.fromkeys(("mean", "p50", "p90", "p99"), latency_ms)
    summary: dict[str, Any] = {
        "e2e_ms": quantiles,
        "requests": {"arrived": requests},
        "duration_s": 30.0,
        "stages": [{"queue_mean": queue / 2}] * 2,
    }
    return RunOutcome(
        words=(),
        summary=summary,
        arrival_s=np.zeros(requests),
        ttft_ms=times,
        tpot_ms=np.full(requests, np.nan),
        inputs="",
    )


def outcomes_of(cases: list[Case], slower: dict[str, float]) -> Outcomes:
    """Each system so many times the execution time, two seeds a little apart."""
    found = {}
    for one in dict.fromkeys(cases):
        (model,) = [model for model in MODELS if one.set_up.name.startswith(model.title)]
        ms = slower[one.label] * model.exec_s * 1e3
        found[one] = tuple(outcome(ms * more, slower[one.label]) for more in (1.0, 1.01))
    return Outcomes(found, {}, requests=FEW)


def test_the_paper_s_own_ratios_are_in_band() -> None:
    """Systems as far apart as the paper's: worst to best, ratios of Figure 6."""
    slower = {QUART: 1.2, "cocktail": 1.9, "inferline": 4.07, "infless": 9.3}
    figure = systems_figures.fig6(outcomes_of(systems_figures.cases_6(FEW), slower))
    rows = {row.name: row for row in figure.rows}
    for name in BASELINES:
        assert rows[f"mean latency, five models, quart over {name}"].verdict == "in band"
    assert rows["order of mean latency"].verdict == "in band"
    kept = [rows[f"requests within 1.5 times the execution time, quart over {one}"] for one in BASELINES]
    assert {row.ratio for row in kept} == {None}  # nobody else keeps it at all, so there is no ratio


def test_the_wrong_way_round_is_out() -> None:
    slower = {QUART: 3.0, "cocktail": 1.9, "inferline": 1.5, "infless": 1.2}
    figure = systems_figures.fig7(outcomes_of(systems_figures.cases_7(FEW), slower))
    verdicts = {row.name: row.verdict for row in figure.rows}
    assert verdicts["order of mean latency, all CVs"] == "out"
    assert verdicts["mean latency, all CVs, quart over infless"] == "out"


def test_queues_and_goodput_are_read_from_the_runs() -> None:
    slower = {QUART: 1.0, "cocktail": 2.0, "inferline": 4.0, "infless": 10.0}
    outcomes = outcomes_of(systems_figures.cases_7(FEW), slower)
    rows = systems_figures.fig8(outcomes).rows
    row = next(one for one in rows if one.name.startswith("mean queue"))
    assert row.ours.startswith("10.0 ") and row.verdict == "in band"
    numbers = systems_figures.fig7(outcomes).numbers
    found = {one.system: one.values[0] for one in numbers if one.metric == "goodput_per_s" and one.x == 8.0}
    assert found == {QUART: 2.0, "cocktail": 2.0, "inferline": 0.0, "infless": 0.0}


def test_a_system_that_is_not_there_is_told() -> None:
    cases = systems_figures.cases_6(FEW)
    missing = {one: f"this version has no system={one.label}" for one in cases}
    for row in systems_figures.fig6(Outcomes({}, missing, requests=FEW)).rows:
        assert row.verdict == "not comparable" and "this version has no system=" in row.why


def test_every_model_and_cv_meets_every_system() -> None:
    assert len(systems_figures.cases_7(FEW)) == len(MODELS) * 5 * len(SYSTEMS)
    assert system(QUART, gamma(MODELS[0], 8.0, FEW)).all_words() == (
        "cluster=quart",
        "model=bert_21b",
        "engine.gpu_memory_utilization=0.95",
        "uncertainty=off",
        "slo.ttft_ms=411",
        "trace=gamma",
        "trace.gap_cv=8",
        "trace.rate_per_s=175.182",
        f"trace.requests={FEW}",
        f"system={QUART}",
    )
    whole = [
        model.name
        for model in MODELS
        if "pipeline.stages=1" in system("infless", gamma(model, 1.0, FEW)).all_words()
    ]
    assert whole == ["bert_21b", "llama_7b_pass", "whisper_9b", "wide_resnet"]
    assert len({recipe.about for recipe in FIGURES.values()}) == len(FIGURES)


def test_figure_3_is_made_of_runs(tmp_path: Path) -> None:
    words = ["reproduce", "quart", "fig3", f"out={tmp_path / 'figures'}", "seeds=1", f"requests={FEW}"]
    assert cli.run([*words, "processes=1"]) == 0
    figure = json.loads((tmp_path / "figures" / "fig3.json").read_text())
    rows = {row["name"]: row for row in figure["rows"]}
    cores = rows["Figure 3b: median latency with 4 cores over 2"]
    assert float(cores["ours"]) == pytest.approx(0.67, abs=0.03)
    assert {row["paper"] for row in figure["rows"]} == {"do not conform (read as by a tenth)", "33 % shorter"}
    assert len(figure["runs"]) == 1 + len(fig02.CORES)


def test_figure_2_reads_the_direction_of_the_cv() -> None:
    def run(first: float, last: float) -> RunOutcome:
        stages = [{"arrival_cv": cv, "queue_mean": cv} for cv in np.linspace(first, last, 5)]
        return replace(outcome(1.0, 1.0), summary={"stages": stages})

    cases = fig02.cases_2(FEW)
    rising = {one: (run(0.03, 0.25), run(0.031, 0.25)) for one in cases}
    falling = {one: (run(0.25, 0.03), run(0.25, 0.031)) for one in cases}
    name = "CV 0.1: CV at the last stage over that at the first"
    for found, verdict in ((rising, "in band"), (falling, "out")):
        rows = {row.name: row for row in fig02.fig2(Outcomes(found, {}, requests=FEW)).rows}
        assert rows[name].verdict == verdict


def test_a_row_that_is_out_says_what_was_measured() -> None:
    stages = {"stages": [{"arrival_cv": 1.0, "queue_mean": 1.0, "busy_replicas": 0.5}] * 5}
    runs = {}
    for case in fig02.cases_3(FEW):
        latencies_ms = (20.0, 20.2) if case.label.endswith("cpu_cores=4") else (10.0, 10.0)
        made = [outcome(ms, 1.0) for ms in latencies_ms]
        runs[case] = tuple(replace(run, summary=run.summary | stages) for run in made)
    cores = fig02.fig3(Outcomes(runs, {}, requests=FEW)).rows[1]
    assert cores.verdict == "out" and cores.why.startswith("on the other side of 1; measured 2.01 [")


def test_ways_of_loads_are_held_against_disk() -> None:
    cases = beyond.loads_cases(FEW)
    found = {
        one: tuple(
            replace(made, summary=made.summary | {"loads": {"seconds": {"mean": took_s, "max": 9.0}}})
            for made in (outcome(100.0 * took_s, 1.0), outcome(101.0 * took_s, 1.0))
        )
        for one in cases
        for took_s in (6.0 if one.label == "quart, disk" else 0.8,)
    }
    figure = beyond.loads(Outcomes(found, {}, requests=FEW))
    assert [row.verdict for row in figure.rows] == ["in band"] * 6
    assert len(figure.numbers) == 5 * 4 * 3
    assert beyond.loads(Outcomes({}, {}, requests=FEW)).rows[0].verdict == "not comparable"


def test_a_cut_that_changes_is_held_against_those_that_stay() -> None:
    sizes = {beyond.TWO: (900.0, 20.0), beyond.EIGHT: (300.0, 50.0), beyond.RECUT: (320.0, 30.0)}
    cases = beyond.recut_cases(FEW)
    found = {}
    for one in cases:
        ttft, gpu = sizes[one.label.removeprefix("quart, ")]
        found[one] = tuple(
            replace(made, summary={"ttft_ms": {"mean": ttft * more}, "gpu_seconds": gpu * more})
            for made, more in ((outcome(1.0, 1.0), 1.0), (outcome(1.0, 1.0), 1.01))
        )
    figure = beyond.recut(Outcomes(found, {}, requests=FEW))
    assert [row.verdict for row in figure.rows] == ["in band"] * 2
    assert [row.ratio for row in figure.rows] == pytest.approx([320 / 900, 30 / 50])
    assert len(figure.numbers) == 4 * 3 * 2 and lacking_words(cases) == []
    assert beyond.recut(Outcomes({}, {}, requests=FEW)).rows[0].verdict == "not comparable"


def test_every_part_of_quart_is_switched_off_beside_it() -> None:
    cases = beyond.parts_cases(FEW)
    found = {one: (outcome(200.0 if one.label.endswith("keys") else 100.0, 1.0),) for one in cases}
    rows = {row.name: row for row in beyond.parts(Outcomes(found, {}, requests=FEW)).rows}
    assert len(rows) == 2 * len(beyond.PARTS)
    keys = rows["CV 4: mean latency, quart over quart without keys"]
    assert keys.verdict == "in band" and keys.ratio == pytest.approx(0.5)
    assert rows["MAF: mean latency, quart over quart without PID"].verdict != "in band"
    assert lacking_words(cases) == []


def test_a_row_that_is_out_says_how_far_it_moves_along_the_sweeps() -> None:
    """With longer runs the order is the paper's, under the start's few replicas it is not."""
    cases = systems_figures.cases_7(FEW)
    sweeps = sweeps_of([*cases, *beyond.parts_cases(FEW), *beyond.loads_cases(FEW)])
    assert {one.kind for one in sweeps} == {"mean load", "start", "length", "plan", "queue"}
    assert {one.subject for one in sweeps} == {f"{model.title}, CV 4" for model in MODELS}
    wrong = {QUART: 3.0, "cocktail": 1.9, "inferline": 1.5, "infless": 1.2}
    right = {QUART: 1.0, "cocktail": 1.9, "infless": 3.0, "inferline": 4.0}
    found = dict(outcomes_of(cases, wrong).runs)
    for sweep in sweeps:
        found |= outcomes_of(list(sweep.cases()), right if sweep.kind == "length" else wrong).runs
    outcomes = Outcomes(found, {}, sweeps, FEW)
    rows = {row.name: row for row in systems_figures.fig7(outcomes).rows}
    order = rows["order of mean latency, all CVs"]
    assert order.verdict == "out"
    assert "by length quart < cocktail < infless < inferline (4 times)" in order.why
    ratio = rows["mean latency, all CVs, quart over infless"]
    assert "by length 0.333 (4 times), 1 of 1 in band" in ratio.why
    assert ("length", "BERT-21B, CV 4") in ratio.saved
    assert lacking_words([one for sweep in sweeps for one in sweep.cases()]) == []


@pytest.mark.parametrize(("kind", "changed"), [("plan", "inferline"), ("queue", QUART)])
def test_where_one_system_is_changed_the_others_have_the_runs_of_the_set_up(kind: str, changed: str) -> None:
    sweep = next(one for one in sweeps_of(systems_figures.cases_7(FEW)) if one.kind == kind)
    ((_, cases),) = sweep.points
    assert {one.label for one in cases if one.once} == {changed}
    assert {one.label for one in cases} == set(SYSTEMS)


def lacking_words(cases: list[Case]) -> list[str]:
    """Words of the cases that this version does not have."""
    return [lacks for words in {one.all_words() for one in cases} if (lacks := lacking(words))]
