"""servetwin reproduce all: head counts first, time left, an interruption, and a second call without runs."""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.blitzscale.registry import BLITZSCALE
from experiments.common import runs
from experiments.common.compare import ratio_row
from experiments.common.figure import Figure
from experiments.common.making import Making, Settings
from experiments.common.outcomes import MEAN_TTFT, Outcomes, RunOutcome
from experiments.common.recipe import Paper, Recipe
from experiments.common.runs import Plan, run_once
from experiments.common.set_up import Case, SetUp
from experiments.common.sweep import SetUpSweep
from experiments.common.time_left import HeadCount, TimeLeft, as_lines, head_count
from experiments.common.verdict import times
from servetwin.cli.main import run

TINY = SetUp(
    "tiny", ("model=llama3_8b", "cluster=blitz_b"), ("trace=gamma", "trace.rate_per_s=20"), rate="written"
)


def cases(requests: int) -> Sequence[Case]:
    set_up = replace(TINY, trace=(*TINY.trace, f"trace.requests={requests}"))
    return [Case(name, set_up, ("system=vllm", f"engine.max_num_seqs={seats}"))
            for name, seats in (("wide", 64), ("narrow", 1))]  # fmt: skip


def made(outcomes: Outcomes) -> Figure:
    wide, narrow = cases(outcomes.requests)
    row = ratio_row(outcomes, "narrow over wide", times(2.0), MEAN_TTFT, ours=narrow, other=wide)
    return Figure("figure1", "Figure 1", (row,))


def sweeps(some: Sequence[Case]) -> tuple[SetUpSweep, ...]:
    points = tuple(replace(case, words=(*case.words, "engine.block_tokens=32"), once=True) for case in some)
    return (SetUpSweep("block", "tiny", "tokens of a block", (("32", points),)),) if some else ()


def papers(name: str) -> Paper:
    """A figure without runs, and the same four runs, with a sweep of two, in two papers."""
    if name == "blitzscale":
        return Paper(
            name=name,
            recipes={"fig21": BLITZSCALE["fig21"]},
            sweeps=sweeps,
            run_cpu_s=1.0,
            requests=False,
        )
    recipes = {"figure1": Recipe("two systems", cases, made)}
    return Paper(name=name, recipes=recipes, sweeps=sweeps, run_cpu_s=1.0)


WORDS = ["reproduce", "all", "out=made", "seeds=2", "requests=12", "processes=1"]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the cases that were run, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.reproduce._PAPERS", ("blitzscale", "llumnix", "quart"))
    monkeypatch.setattr("experiments.reproduce._paper", papers)
    labels = list[str]()

    def counted(case: Case, seed: int) -> RunOutcome:
        labels.append(case.label)
        return run_once(case, seed)

    monkeypatch.setattr(runs, "run_once", counted)
    return labels


def test_all_papers_are_made_and_a_second_call_runs_nothing(
    ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(WORDS) == 0
    assert len(ran) == 6  # the second paper's are kept: they are the first's
    text = capsys.readouterr().out
    checked, head, *_ = text.splitlines()
    assert checked == "checking the runs of 3 figures"
    assert head.startswith("3 figures of 3 papers, 12 runs: 0 are kept, 12 to do, minutes unknown")
    assert "\n  llumnix: 1 figures, 6 runs, 0 kept, 6 to do, minutes unknown before the first run\n" in text
    assert "same command goes on there" in text and text.endswith(f"figures in {Path('made').resolve()}\n")
    assert "all: 17 rows\n  17 held against a number of the paper: " in text
    index = Path("made/index.md").read_text()
    assert (
        "17 rows" in index and "## [quart](quart/page.md)" in index and "| `fig21` | 9 / 6 / 0 / 0 |" in index
    )
    html = Path("made/index.html").read_text()
    assert '<a href="llumnix/page.html">' in html and "servetwin reproduce all out=made" in html
    assert {path.name for path in Path("made/quart").iterdir()} >= {
        "figure1.json",
        "page.html",
        "sweeps.json",
    }
    ran.clear()
    assert run(WORDS) == 2 and "overwrite=true" in capsys.readouterr().err
    assert run([*WORDS, "overwrite=true", "--json"]) == 0
    printed = capsys.readouterr()
    assert ran == [] and "12 are kept, 0 to do, about 0 minutes" in printed.err
    data = json.loads(printed.out)
    assert list(data["papers"]) == ["blitzscale", "llumnix", "quart"]
    assert sum(data["counts"]["paper_number"].values()) == 17
    assert run(["reproduce", "verdicts", "made"]) == 0
    assert "quart: 1 rows" in capsys.readouterr().out


def test_an_interrupted_command_goes_on_with_fewer_runs(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted, before = runs.run_once, signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(case: Case, seed: int) -> RunOutcome:
        if len(ran) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return counted(case, seed)

    monkeypatch.setattr(runs, "run_once", interrupted)
    try:
        assert run(WORDS) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    error = capsys.readouterr().err
    assert "nothing was written; finished runs are kept in made.runs" in error and error.count("\n") == 1
    assert not Path("made").exists() and len(list(Path("made.runs").glob("*.npz"))) == 4
    monkeypatch.setattr(runs, "run_once", counted)
    ran.clear()
    assert run(WORDS) == 0
    assert len(ran) == 2
    assert "12 runs: 8 are kept, 4 to do" in capsys.readouterr().out  # of both papers


def test_sweeps_of_missed_rows_are_told_to_be_uncounted(
    ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, "sweeps=missed"]) == 0
    text = capsys.readouterr().out
    assert "8 runs: 0 are kept" in text and "not counted: the sweeps of rows that will be out" in text
    assert len(ran) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["all"], "out is missing"),
        (["all", "fig6", "out=x"], "write servetwin reproduce PAPER fig6"),
        (["all", "out=x", "requests=0"], "requests=0 is out of range"),
        (["all", "out=x", "seed=1"], "for servetwin reproduce all: write seeds=VALUE"),
    ],
)
def test_refusals_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


# How long the other runs take.


def heads() -> list[HeadCount]:
    return [
        HeadCount(paper=paper, figures=1, runs=10, kept=kept, missing=0, run_s=run_s)
        for paper, kept, run_s in (("slow", 4, 6.0), ("fast", 0, 2.0))
    ]


def test_the_time_left_follows_the_speed_of_the_runs_made() -> None:
    clock, said, shown = [0.0], list[str](), list[tuple[int, int]]()
    left = TimeLeft(heads(), said.append, None, lambda: clock[0])
    assert left.left_s() is None
    slow = left.of("slow")
    clock[0] = 24.0
    slow(6, 10)  # two runs of 6 s took 24 s: everything takes twice as long
    assert left.left_s() == pytest.approx(2 * (4 * 6 + 10 * 2)) and said == []
    clock[0] = 36.0
    slow(7, 10)
    assert said == ["slow: 3 of 16 runs made, about 1 minute left"]
    slow(8, 12)  # sweeps of missed rows
    assert left.left_s() == pytest.approx(36 / 24 * (4 * 6 + 10 * 2)) and len(said) == 1
    bar = TimeLeft(heads(), said.append, lambda made, to_do: shown.append((made, to_do)), lambda: clock[0])
    bar.of("fast")(1, 10)
    assert shown == [(1, 16)] and len(said) == 1


def test_the_head_says_what_each_paper_takes(tmp_path: Path) -> None:
    settings = Settings(
        figures=("all",), out=str(tmp_path / "a"), seeds=5, processes=2, sweeps="true", overwrite=False,
        requests=5_000,
    )  # fmt: skip
    lines = list(
        as_lines([replace(head, run_s=head.run_s * 100) for head in heads()], settings, settings.store())
    )
    assert lines[0].endswith("20 runs: 4 are kept, 16 to do, about 47 minutes with processes=2")
    assert lines[1] == "  slow: 1 figures, 10 runs, 4 kept, 6 to do, about 30 minutes"
    paper, (wide, narrow) = papers("quart"), cases(12)
    making = Making(paper, paper.recipes, Plan({wide: 5, narrow: 1}, {}, ()))
    assert head_count(making, settings, settings.store()).run_s == pytest.approx(1.0 / 2)  # half the requests
    stored = replace(run_once(wide, 0), wall_s=3.0)
    settings.store().keep(wide, 1, stored)
    head = head_count(making, settings, settings.store())
    assert (head.runs, head.kept, head.to_do, head.run_s) == (6, 1, 5, 3.0)
