"""``servetwin reproduce all``: every figure of every paper, with the number of runs told first."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.common import index_page
from experiments.common.figure import Figure
from experiments.common.making import GOES_ON, Settings, outcomes_of, prepared, written
from experiments.common.recipe import Paper
from experiments.common.shown import as_data, counts, heading, tally
from experiments.common.time_left import TimeLeft, as_lines, head_count
from servetwin.cli.process import tell, telling
from servetwin.config.version import code_version
from servetwin.results.result_folder import ResultFolder
from servetwin.run.progress import progress_bar


def make_all(papers: Sequence[Paper], settings: Settings, command: str) -> None:
    """Write a folder for each paper and an index of all. Runs stay in the store, also after the last."""
    store, figures = settings.store(), dict[str, list[Figure]]()
    try:
        with ResultFolder(settings.out, settings.overwrite) as folder:
            figure_count = sum(len(paper.recipes) for paper in papers)
            _say_first([f"checking the runs of {figure_count} figures"], settings.json)
            makings = [prepared(paper, paper.recipes, settings) for paper in papers]
            heads = [head_count(making, settings, store) for making in makings]
            _say_first(as_lines(heads, settings, store), settings.json)
            with progress_bar("reproducing") as bar:
                left = TimeLeft(heads, _say, bar)
                for making in makings:
                    name = making.paper.name
                    outcomes = outcomes_of(making, settings, store, left.of(name))
                    (folder.path / name).mkdir()
                    figures[name] = written(making.recipes, outcomes, folder.path / name, command)
                    del outcomes  # a paper's runs are large
            _write_index(figures, folder.path, command)
            target = folder.commit()
    except KeyboardInterrupt as stop:
        stop.add_note(GOES_ON.format(store.folder))
        raise
    _tell(figures, settings, target)


def _say_first(lines: Iterable[str], as_json: bool) -> None:
    """Print the lines at once, and beside a JSON document on stderr."""
    with telling():
        print("\n".join(lines), file=sys.stderr if as_json else sys.stdout, flush=True)


def _say(sentence: str) -> None:
    if sys.stderr is not None:
        print(sentence, file=sys.stderr, flush=True)


def _write_index(figures: dict[str, list[Figure]], folder: Path, command: str) -> None:
    commit = code_version()["commit"]
    texts = (index_page.as_markdown(figures, command, commit), index_page.as_html(figures, command, commit))
    for name, text in zip(index_page.FILES, texts, strict=True):
        (folder / name).write_text(text, encoding="utf-8")


def _tell(figures: dict[str, list[Figure]], settings: Settings, target: Path) -> None:
    """Print the counts of each paper and of all, or everything as one document."""
    where = f"; the figures are in {target}"
    everything = [figure for part in figures.values() for figure in part]
    if settings.json:
        papers = {name: as_data(part) for name, part in figures.items()}
        tell({"folder": str(target), "counts": counts(everything), "papers": papers}, (), True, where)
        return
    with telling(where):
        for name, part in figures.items():
            print(f"{name}: {heading(part)}")
        print(f"all: {tally(everything)}\nfigures in {target}")
