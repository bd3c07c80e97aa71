"""Makes the figures of one paper: runs their cases and sweeps, and writes figures, tables and pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from experiments.common import csv_tables, html_page, page, saved
from experiments.common.drawing import draw
from experiments.common.figure import FAILED, Figure
from experiments.common.outcomes import Outcomes
from experiments.common.recipe import Paper, Recipe
from experiments.common.run_store import RunStore
from experiments.common.runs import (
    Plan,
    Progress,
    carried_out,
    carry_out,
    command_of,
    links_file,
    planned,
    rows_file,
)
from experiments.common.shown import as_json
from experiments.common.sweep import SetUpSweep
from servetwin.config.version import code_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in the words, with defaults.

    sweeps: "true", "missed" or "false". requests: the number of requests of each run, for papers whose runs
    all have the same number.
    json: print one document in place of tables.
    """

    figures: tuple[str, ...]
    out: str
    seeds: int
    processes: int
    sweeps: str
    overwrite: bool
    runs: str = ""
    requests: int = 10_000
    json: bool = False

    def store(self) -> RunStore:
        """The folder in which finished runs are kept."""
        return RunStore(Path(self.runs or f"{self.out.rstrip('/')}.runs"))


@dataclass(frozen=True, slots=True)
class Making:
    """Figures of a paper that are to be made, and the checked runs of them."""

    paper: Paper
    recipes: Mapping[str, Recipe]
    plan: Plan


GOES_ON: Final = "finished runs are kept in {}, so the same command goes on from there"


def prepared(paper: Paper, recipes: Mapping[str, Recipe], settings: Settings) -> Making:
    """Check all runs of these figures. UserError for one that cannot run and must."""
    cases = [case for recipe in recipes.values() for case in recipe.cases(settings.requests)]
    sweeps = paper.sweeps(cases) if settings.sweeps == "true" else ()
    plan = planned(cases, settings.seeds, processes=settings.processes, sweeps=sweeps)
    return Making(paper, recipes, plan)


def outcomes_of(
    making: Making, settings: Settings, store: RunStore, on_progress: Progress | None
) -> Outcomes:
    """Make the runs that are not in the store; with ``sweeps=missed`` then sweeps of rows that are out."""
    processes = settings.processes
    first = carried_out(making.plan, processes=processes, on_progress=on_progress, store=store)
    first = replace(first, requests=settings.requests)
    if settings.sweeps != "missed":
        return first
    cases = [case for recipe in making.recipes.values() for case in recipe.cases(settings.requests)]
    sweeps = sweeps_of_missed(making.recipes, first, making.paper.sweeps(cases))
    if not sweeps:
        return first
    both = carry_out(
        cases, settings.seeds, processes=processes, on_progress=on_progress, sweeps=sweeps, store=store
    )
    return replace(both, requests=settings.requests)


def sweeps_of_missed(
    recipes: Mapping[str, Recipe], outcomes: Outcomes, sweeps: Sequence[SetUpSweep]
) -> list[SetUpSweep]:
    """Return the sweeps of those set-ups on which a row is out."""
    rows = [row for recipe in recipes.values() for row in recipe.make(outcomes).rows]
    out = {subject for row in rows if row.verdict in FAILED for _, subject in row.saved}
    return [sweep for sweep in sweeps if sweep.subject in out]


def written(recipes: Mapping[str, Recipe], outcomes: Outcomes, folder: Path, command: str) -> list[Figure]:
    """Write the figures and what they share into the folder, and return them."""
    figures = [_write(recipe, outcomes, folder, command) for recipe in recipes.values()]
    _write_tables(figures, outcomes, folder, command)
    return figures


def _write_tables(figures: list[Figure], outcomes: Outcomes, folder: Path, command: str) -> None:
    """Write what all figures share: sweeps, points, runs, and the page in Markdown and in HTML."""
    commit = code_version()["commit"]
    texts = {
        saved.FILE: saved.as_text(saved.as_saved(outcomes, figures)),
        csv_tables.POINTS_FILE: csv_tables.points_csv(figures),
        csv_tables.RUNS_FILE: csv_tables.runs_csv(outcomes),
        page.FILE: page.as_page(figures, command, commit),
        html_page.FILE: html_page.as_html(figures, command, commit, folder),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _write(recipe: Recipe, outcomes: Outcomes, folder: Path, command: str) -> Figure:
    """Write FIGURE.json, FIGURE.png, and the cluster files and requests that only its runs have."""
    figure = recipe.make(outcomes)
    cases = tuple(dict.fromkeys(recipe.cases(outcomes.requests)))
    runs = [command_of(run, case) for case in cases for run in outcomes.of(case)]
    text = as_json(figure, command, code_version()["commit"], runs)
    (folder / f"{figure.name}.json").write_text(text, encoding="utf-8")
    draw(figure, folder / f"{figure.name}.png")
    for case in cases:
        for name, text in ((f"clusters/{links_file(case)}", case.links), (rows_file(case), case.rows)):
            if text and outcomes.of(case):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
    return figure
