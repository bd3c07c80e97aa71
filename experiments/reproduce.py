"""``servetwin reproduce PAPER FIGURE ... out=FOLDER``: reproduces figures of a paper, with verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from servetwin.cli.subcommands import by_verb
from servetwin.config.overrides import Wanted, closest, echo, parse_value, parse_words
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from experiments.common.making import Settings
    from experiments.common.recipe import Paper, Recipe

_PAPERS: Final = ("blitzscale", "llumnix", "quart", "scale", "scalers")
USAGE: Final = """servetwin reproduce: figures of a paper, ours beside the paper's

  servetwin reproduce PAPER list                    the figures there are; PAPER: blitzscale | llumnix | quart
                                                    | scale (our own study: 64 to 8,192 GPUs) | scalers
                                                    (autoscalers beside observed counts, claims, live scaling)
  servetwin reproduce PAPER FIGURE ... out=DIR      make these (all: every one)
  servetwin reproduce all out=DIR                   every figure of every paper, runs and minutes told first
  servetwin reproduce verdicts DIR ...              count the verdicts of kept results again, without runs

Keys: out=DIR, seeds=5 (runs of each system, paired), processes=2, sweeps=true (further runs that tell what
the results hang on: windows, loads, memory, rules; missed: where a row is out alone; false: none),
overwrite=false, runs=DIR (where finished runs are kept, so that the same command goes on after a break;
without it DIR is OUT.runs, deleted at the end, but not after "all"); of llumnix and quart requests=10000
(of a run; of llumnix no verdict is claimed with fewer).
"all" writes a folder for each paper beside index.md and index.html, and says how long the other runs take.
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


def reproduce(words: Sequence[str]) -> int:
    """Run without the first word; exit status 2 without a paper."""
    verbs: dict[str, Callable[[Sequence[str]], int]] = {"all": _every_paper, "verdicts": _verdicts}
    papers = {name: partial(_reproduce, name) for name in _PAPERS}
    return by_verb("reproduce", words, papers | verbs, USAGE)


def _every_paper(words: Sequence[str]) -> int:
    """Make every figure of every paper."""
    from experiments.common.all_papers import make_all

    words, as_json = asked_for_json(words)
    for word in words:
        if "=" not in word:
            raise UserError(
                f"servetwin reproduce all makes every figure: write servetwin reproduce PAPER {echo(word)}"
            )
    settings = replace(settings_of(["all", *words], "all", _KEYS | _REQUESTS), json=as_json)
    make_all([_paper(name) for name in _PAPERS], settings, " ".join(("servetwin reproduce all", *words)))
    return 0


def _verdicts(words: Sequence[str]) -> int:
    """Count the verdicts of kept results again, by today's rule."""
    from experiments.common.recount import as_data, as_lines, kept_figures

    folders, as_json = asked_for_json(words)
    if not folders or any("=" in folder for folder in folders):
        raise UserError("servetwin reproduce verdicts takes folders: write those that reproduce has made")
    figures = kept_figures(folders)
    tell(as_data(figures), as_lines(figures), as_json)
    return 0


def settings_of(words: Sequence[str], paper: str, keys: Mapping[str, Wanted] = _KEYS) -> "Settings":
    """Parse figures first, then keys. Raises UserError naming the word."""
    from experiments.common.making import Settings

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
        case "quart":
            from experiments.quart.registry import paper
        case "scale":
            from experiments.scale.registry import paper
        case _:
            from experiments.scalers.registry import paper
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


def _make(recipes: "Mapping[str, Recipe]", paper: "Paper", settings: "Settings", command: str) -> None:
    from experiments.common.making import GOES_ON, outcomes_of, prepared, written
    from experiments.common.shown import as_data, heading, print_figure, tally
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run.progress import progress_bar

    store = settings.store()
    try:
        with ResultFolder(settings.out, settings.overwrite) as folder:
            making = prepared(paper, recipes, settings)
            with progress_bar("reproducing") as on_progress:
                outcomes = outcomes_of(making, settings, store, on_progress)
            figures = written(recipes, outcomes, folder.path, command)
            target = folder.commit()
    except KeyboardInterrupt as stop:
        stop.add_note(GOES_ON.format(store.folder))
        raise
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
