"""``servetwin reproduce PAPER FIGURE ... out=FOLDER``: reproduces figures of a paper, with verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from servetwin.cli.subcommands import by_verb
from servetwin.config.overrides import Wanted, closest, echo, parse_value, parse_words
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from experiments.common.figure import Figure
    from experiments.common.outcomes import Outcomes
    from experiments.common.recipe import Paper, Recipe
    from experiments.common.run_store import RunStore
    from experiments.common.runs import Progress
    from experiments.common.set_up import Case
    from experiments.common.sweep import SetUpSweep

_PAPERS: Final = ("blitzscale", "llumnix", "quart")
USAGE: Final = """servetwin reproduce: figures of a paper, ours beside the paper's

  servetwin reproduce PAPER list                    the figures there are; PAPER: blitzscale | llumnix | quart
  servetwin reproduce PAPER FIGURE ... out=DIR      make these (all: every one)
  servetwin reproduce verdicts DIR ...              count the verdicts of kept results again, without runs

Keys: out=DIR, seeds=5 (runs of each system, paired), processes=2, sweeps=true (further runs that tell what
the results hang on: windows, loads, memory, rules; missed: where a row is out alone; false: none),
overwrite=false, runs=DIR (where finished runs are kept, so that the same command goes on after a break;
without it DIR is OUT.runs, deleted at the end); of llumnix and quart requests=10000 (of a run; of llumnix
no verdict is claimed with fewer).
Writes FIGURE.json, FIGURE.png, points.csv (all that is drawn), runs.csv (every run with its command),
sweeps.json, page.md and page.html into DIR and prints, below the counts of verdicts, a table: paper, ours,
their ratio, a verdict. "in band": direction and order hold and the size is within a factor 1.5, or within
the bound that the figure names; of a saving or an increase the ratio and the change are (0.71 is out for
0.5). "out" is told with what was measured and where in sweeps.json it is. A change of less than 5 % is
counted apart, by its direction.
Points of llumnix's figures are read from llumnix_points.csv of the folder SERVETWIN_FIGURES; without it
ours stand alone.

Examples: servetwin reproduce blitzscale fig21 out=out/fig21
          servetwin reproduce llumnix fig10 out=out/fig10
"""

_KEYS: Final = {
    "out": Wanted(str),
    "seeds": Wanted(int),
    "processes": Wanted(int),
    "sweeps": Wanted(str, choices=("true", "missed", "false")),
    "overwrite": Wanted(bool),
    "runs": Wanted(str),
}
_REQUESTS: Final = {"requests": Wanted(int)}
_MOST: Final = {"seeds": 100, "processes": 256, "requests": 10_000}


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


def reproduce(words: Sequence[str]) -> int:
    """Run without the first word; exit status 2 without a paper."""
    verbs = {name: partial(_reproduce, name) for name in _PAPERS} | {"verdicts": _verdicts}
    return by_verb("reproduce", words, verbs, USAGE)


def _verdicts(words: Sequence[str]) -> int:
    """Count the verdicts of kept results again, by today's rule."""
    from experiments.common.recount import as_data, as_lines, kept_figures

    folders, as_json = asked_for_json(words)
    if not folders or any("=" in folder for folder in folders):
        raise UserError("servetwin reproduce verdicts takes folders: write those that reproduce has made")
    figures = kept_figures(folders)
    tell(as_data(figures), as_lines(figures), as_json)
    return 0


def settings_of(words: Sequence[str], paper: str, keys: Mapping[str, Wanted] = _KEYS) -> Settings:
    """Parse figures first, then keys. Raises UserError naming the word."""
    figures = [word for word in words if "=" not in word]
    settings: dict[str, Any] = {"seeds": 5, "processes": 2, "sweeps": "true", "overwrite": False}
    for word in parse_words([word for word in words if "=" in word]):
        if word.key not in keys:
            near = closest(word.key, keys) or ", ".join(keys)
            raise UserError(
                f"unknown key '{echo(word.key)}' for servetwin reproduce {paper}: write {near}=VALUE"
            )
        settings[word.key] = parse_value(word, keys[word.key])
    for key, most in _MOST.items():
        value = settings.get(key, 1)
        if not isinstance(value, int) or not 1 <= value <= most:
            raise UserError(f"{key}={value} is out of range: write a number from 1 to {most}")
    if not figures:
        raise UserError(f"servetwin reproduce {paper} lacks a figure: write one of its list, or all")
    if not settings.get("out"):
        raise UserError("out is missing: write out=FOLDER, the folder the figures go to")
    return Settings(figures=tuple(figures), **settings)


def _paper(name: str) -> "Paper":
    match name:
        case "blitzscale":
            from experiments.blitzscale.registry import paper
        case "llumnix":
            from experiments.llumnix.registry import paper
        case _:
            from experiments.quart.registry import paper
    return paper()


def _reproduce(name: str, words: Sequence[str]) -> int:
    """Make the figures of one paper, or list them."""
    from experiments.common.recipe import chosen

    paper = _paper(name)
    words, as_json = asked_for_json(words)
    command = " ".join(("servetwin", "reproduce", name, *words))
    if list(words) == ["list"]:
        about = {figure: recipe.about for figure, recipe in paper.recipes.items()}
        tell(about, (f"{figure:10s} {text}" for figure, text in about.items()), as_json)
        return 0
    keys = _KEYS | _REQUESTS if paper.requests else _KEYS
    settings = replace(settings_of(words, name, keys), json=as_json)
    _make(chosen(name, paper.recipes, settings.figures), paper, settings, command)
    return 0


def _make(recipes: "Mapping[str, Recipe]", paper: "Paper", settings: Settings, command: str) -> None:
    from experiments.common.run_store import RunStore
    from experiments.common.shown import as_data, heading, print_figure, tally
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run.progress import progress_bar

    store = RunStore(Path(settings.runs or f"{settings.out.rstrip('/')}.runs"))
    with ResultFolder(settings.out, settings.overwrite) as folder:
        cases = [case for recipe in recipes.values() for case in recipe.cases(settings.requests)]
        with progress_bar("reproducing") as on_progress:
            run = partial(_run, cases, settings, store, on_progress)
            outcomes = _with_sweeps(run, recipes, partial(paper.sweeps, cases), settings.sweeps)
        figures = [_write(recipe, outcomes, folder.path, command) for recipe in recipes.values()]
        _write_tables(figures, outcomes, folder.path, command)
        target = folder.commit()
    if not settings.runs:
        store.clear()
    where = f"; the figures are in {target}"
    if settings.json:
        tell({"folder": str(target), **as_data(figures)}, (), True, where)
        return
    with telling(where):
        print(f"{heading(figures)}\n")
        for figure in figures:
            print_figure(figure)
        print(f"{tally(figures)}\nfigures in {target}")


def _run(
    cases: "Sequence[Case]",
    settings: Settings,
    store: "RunStore",
    on_progress: "Progress | None",
    sweeps: "Sequence[SetUpSweep]",
) -> "Outcomes":
    from experiments.common.runs import carry_out

    outcomes = carry_out(
        cases,
        seeds=settings.seeds,
        processes=settings.processes,
        on_progress=on_progress,
        sweeps=sweeps,
        store=store,
    )
    return replace(outcomes, requests=settings.requests)


def _with_sweeps(
    run: "Callable[[Sequence[SetUpSweep]], Outcomes]",
    recipes: "Mapping[str, Recipe]",
    sweeps: "Callable[[], Sequence[SetUpSweep]]",
    which: str,
) -> "Outcomes":
    """Run the cases and sweeps. With ``missed`` the cases run first; stored runs are not repeated."""
    if which != "missed":
        return run(sweeps() if which == "true" else ())
    from experiments.common.figure import FAILED

    first = run(())
    rows = [row for recipe in recipes.values() for row in recipe.make(first).rows]
    out = {subject for row in rows if row.verdict in FAILED for _, subject in row.saved}
    wanted = [sweep for sweep in sweeps() if sweep.subject in out]
    return run(wanted) if wanted else first


def _write_tables(figures: "list[Figure]", outcomes: "Outcomes", folder: Path, command: str) -> None:
    """Write what all figures share: sweeps, points, runs, and the page in Markdown and in HTML."""
    from experiments.common import csv_tables, html_page, page, saved
    from servetwin.config.version import code_version

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


def _write(recipe: "Recipe", outcomes: "Outcomes", folder: Path, command: str) -> "Figure":
    """Write FIGURE.json, FIGURE.png, and the cluster files and requests that only its runs have."""
    from experiments.common.drawing import draw
    from experiments.common.runs import command_of, links_file, rows_file
    from experiments.common.shown import as_json
    from servetwin.config.version import code_version

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
