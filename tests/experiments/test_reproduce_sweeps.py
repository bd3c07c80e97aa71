"""servetwin reproduce: whose sweeps are run, and what Llumnix's consist of."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.common.figure import Figure, FigureRow, Verdict
from experiments.common.making import sweeps_of_missed
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Recipe
from experiments.common.sweep import SetUpSweep
from experiments.llumnix.set_ups import BY_TITLE, system
from experiments.llumnix.sweeps import sweeps_of
from servetwin.cli.main import run

SWEEPS = [SetUpSweep("rule", subject, "", ()) for subject in ("low", "middle", "high")]


def row(subject: str, verdict: Verdict) -> FigureRow:
    return FigureRow(
        name=subject, paper="1", ours="2", ratio=2.0, verdict=verdict, why="why", saved=(("seed", subject),)
    )


def swept(*rows: FigureRow) -> list[str]:
    """The subjects whose sweeps are run with sweeps=missed."""
    make: Callable[[Outcomes], Figure] = lambda _: Figure("fig", "", rows)  # noqa: E731
    recipes = {"fig": Recipe("", lambda _: (), make)}
    return [one.subject for one in sweeps_of_missed(recipes, Outcomes({}, {}), SWEEPS)]


def test_sweeps_of_what_is_missed_follow_the_runs_that_say_so() -> None:
    rows = row("low", "in band"), row("middle", "out"), row("high", "not shown"), row("high", "in band")
    assert swept(*rows) == ["middle"]
    assert swept(row("low", "direction held"), row("high", "direction not held")) == ["high"]
    assert swept(row("low", "in band")) == []


def test_another_word_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "llumnix", "fig4", "sweeps=some", f"out={tmp_path / 'a'}"]) == 2
    assert "sweeps wants one of true, missed, false" in capsys.readouterr().err


def test_figure_11_is_swept_by_memory_for_all_systems() -> None:
    workload = BY_TITLE["M-M"]
    cases = [system(one, workload.at(7.5, 50), workload) for one in ("llumnix", "infaas_pp")]
    (memory,) = [one for one in sweeps_of(cases) if one.kind == "KV memory"]
    words = [
        [word for one in there for word in one.all_words() if "kv_tokens" in word]
        for _, there in memory.points
    ]
    assert words == [["engine.kv_tokens=11440"] * 2, ["engine.kv_tokens=13616"] * 2]
