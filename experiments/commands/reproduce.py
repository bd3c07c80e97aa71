"""``servetwin reproduce PAPER FIGURE ... out=FOLDER``: figures of a paper made again, with verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from experiments.commands.process import telling
from experiments.commands.verbs import by_verb
from experiments.config.overrides import Wanted, closest, echo, parse_value, parse_words
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from experiments.reproduce.figure import Figure
    from experiments.reproduce.outcomes import Outcomes
    from experiments.reproduce.registry import Recipe

USAGE: Final = """servetwin reproduce: figures of a paper, ours beside the paper's

  servetwin reproduce blitzscale list                    the figures there are
  servetwin reproduce blitzscale FIGURE ... out=DIR      make these (all: every one)

Keys: out=DIR, seeds=5 (runs of each system, paired), processes=2, sweeps=true (further runs that tell what
the results hang on: windows, loads, memory, time-outs), overwrite=false, runs=DIR (where finished runs are
kept, so that the same command goes on after a break; without it DIR is OUT.runs, deleted at the end).
Writes FIGURE.json, FIGURE.png, sweeps.json and page.md into DIR and prints, below the counts of verdicts,
a table: paper, ours, their ratio, a verdict. "in band": direction and order hold and the size is within a
factor 1.5; "out" is told with what was measured and where in sweeps.json it is.

Example: servetwin reproduce blitzscale fig21 out=out/fig21
"""

_KEYS: Final = {
    "out": Wanted(str),
    "seeds": Wanted(int),
    "processes": Wanted(int),
    "sweeps": Wanted(bool),
    "overwrite": Wanted(bool),
    "runs": Wanted(str),
}
_MOST: Final = {"seeds": 100, "processes": 256}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the words ask for, defaults filled in."""

    figures: tuple[str, ...]
    out: str
    seeds: int
    processes: int
    sweeps: bool
    overwrite: bool
    runs: str = ""


def reproduce(words: Sequence[str]) -> int:
    """The command without its first word; exit status 2 without a paper."""
    return by_verb("reproduce", words, {"blitzscale": _blitzscale}, USAGE)


def settings_of(words: Sequence[str]) -> Settings:
    """Figures first, then keys. Raises UserError naming the word."""
    figures = [word for word in words if "=" not in word]
    given: dict[str, object] = {"seeds": 5, "processes": 2, "sweeps": True, "overwrite": False}
    for word in parse_words([word for word in words if "=" in word]):
        if word.key not in _KEYS:
            near = closest(word.key, _KEYS) or ", ".join(_KEYS)
            raise UserError(f"unknown key '{echo(word.key)}' for servetwin reproduce: write {near}=VALUE")
        given[word.key] = parse_value(word, _KEYS[word.key])
    for key, most in _MOST.items():
        value = given[key]
        if not isinstance(value, int) or not 1 <= value <= most:
            raise UserError(f"{key}={value} is out of range: write a number from 1 to {most}")
    if not figures:
        raise UserError("servetwin reproduce blitzscale lacks a figure: write one of its list, or all")
    if not given.get("out"):
        raise UserError("out is missing: write out=FOLDER, the folder the figures go to")
    return Settings(tuple(figures), **given)  # type: ignore[arg-type]


def _blitzscale(words: Sequence[str]) -> int:
    from experiments.reproduce.registry import PAPERS, chosen

    if list(words) == ["list"]:
        with telling():
            for name, recipe in PAPERS["blitzscale"].items():
                print(f"{name:10s} {recipe.told}")
        return 0
    settings = settings_of(words)
    recipes = chosen("blitzscale", settings.figures)
    command = " ".join(("servetwin reproduce blitzscale", *words))
    _make(recipes, settings, command)
    return 0


def _make(recipes: "Mapping[str, Recipe]", settings: Settings, command: str) -> None:
    from experiments.commands.progress import progress_bar
    from experiments.config.version import code_version
    from experiments.reproduce.page import FILE as PAGE
    from experiments.reproduce.page import as_page
    from experiments.reproduce.registry import sweeps_of
    from experiments.reproduce.run_store import RunStore
    from experiments.reproduce.runs import carry_out
    from experiments.reproduce.saved import FILE, as_saved, as_text
    from experiments.reproduce.shown import heading, print_figure, tally
    from experiments.results.result_folder import ResultFolder

    store = RunStore(Path(settings.runs or f"{settings.out.rstrip('/')}.runs"))
    with ResultFolder(settings.out, settings.overwrite) as folder:
        cases = [one for recipe in recipes.values() for one in recipe.cases()]
        with progress_bar("reproducing") as on_progress:
            sweeps = sweeps_of(cases) if settings.sweeps else ()
            outcomes = carry_out(cases, settings.seeds, settings.processes, on_progress, sweeps, store)
        figures = [_write(recipe, outcomes, folder.path, command) for recipe in recipes.values()]
        (folder.path / FILE).write_text(as_text(as_saved(outcomes, figures)), encoding="utf-8")
        page = as_page(figures, command, code_version()["commit"])
        (folder.path / PAGE).write_text(page, encoding="utf-8")
        target = folder.commit()
    if not settings.runs:
        store.clear()
    with telling(f"; the figures are in {target}"):
        print(f"{heading(figures)}\n")
        for figure in figures:
            print_figure(figure)
        print(f"{tally(figures)}\nfigures in {target}")


def _write(recipe: "Recipe", outcomes: "Outcomes", folder: Path, command: str) -> "Figure":
    """FIGURE.json, FIGURE.png, and the cluster files that runs of it had in place of their cluster's."""
    from experiments.config.version import code_version
    from experiments.reproduce.drawing import draw
    from experiments.reproduce.runs import command_of, links_file
    from experiments.reproduce.shown import as_json

    figure = recipe.make(outcomes)
    runs = [command_of(one, case) for case in dict.fromkeys(recipe.cases()) for one in outcomes.of(case)]
    text = as_json(figure, command, code_version()["commit"], runs)
    (folder / f"{figure.name}.json").write_text(text, encoding="utf-8")
    draw(figure, folder / f"{figure.name}.png")
    for case in recipe.cases():
        if case.links and outcomes.of(case):
            (folder / "clusters").mkdir(exist_ok=True)
            (folder / "clusters" / links_file(case)).write_text(case.links, encoding="utf-8")
    return figure
