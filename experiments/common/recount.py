"""``servetwin reproduce verdicts FOLDER ...``: counts verdicts of kept results again, without runs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from experiments.common.figure import FigureRow, Judged
from experiments.common.shown import KINDS, counts_of, spelt
from experiments.common.verdict import by_ratio_alone, judged_again
from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class KeptFigure:
    """A figure read from its FIGURE.json; its rows have the verdicts of today's rule.

    earlier: whether the file is of a version that kept no numbers, so that its verdicts stay as they were.
    """

    paper: str
    name: str
    rows: tuple[FigureRow, ...]
    earlier: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """A row that the ratio alone would judge otherwise. alone: that verdict."""

    paper: str
    figure: str
    row: FigureRow
    alone: str


def kept_figures(folders: Sequence[str]) -> list[KeptFigure]:
    """Return the figures of these result folders. UserError if one has none, or a figure is in two files."""
    found: dict[tuple[str, str], Path] = {}
    figures = list[KeptFigure]()
    for folder in folders:
        before = len(figures)
        for path, data in _documents(Path(folder)):
            figure = _figure(path, data)
            other = found.setdefault((figure.paper, figure.name), path)
            if other != path:
                raise UserError(
                    f"{figure.name} of {figure.paper} is in {other} and in {path}: "
                    "name folders that have it once"
                )
            figures.append(figure)
        if len(figures) == before:
            raise UserError(f"{folder} has no figure: write a folder that servetwin reproduce has made")
    return figures


def changed_rows(figures: Iterable[KeptFigure]) -> list[Changed]:
    """Return the rows whose verdict the change of 1, a saving or an increase, decides."""
    return [
        Changed(figure.paper, figure.name, row, alone)
        for figure in figures
        for row in figure.rows
        if (alone := by_ratio_alone(row)) != row.verdict
    ]


def as_lines(figures: Sequence[KeptFigure]) -> Iterator[str]:
    """The counts of each paper and of all, then the rows that the ratio alone would judge otherwise."""
    by_paper = _by_paper(figures)
    for paper, rows in by_paper.items():
        yield from _counted(paper, rows)
    if len(by_paper) > 1:
        yield from _counted("all", [row for rows in by_paper.values() for row in rows])
    earlier = sum(figure.earlier for figure in figures)
    if earlier:
        yield f"{earlier} of {len(figures)} figures kept no numbers: their verdicts are as they were made"
    changes = changed_rows(figures)
    yield f"{len(changes)} rows would be judged otherwise by the ratio alone"
    for one in changes:
        row = one.row
        yield (
            f"  {one.paper} {one.figure}, {row.name}: paper {row.paper}, ours {row.ours}: "
            f"{one.alone} by the ratio alone, {row.verdict}"
        )


def as_data(figures: Sequence[KeptFigure]) -> dict[str, Any]:
    """The same for programs."""
    by_paper = _by_paper(figures)
    return {
        "counts": {paper: counts_of(rows) for paper, rows in by_paper.items()},
        "all": counts_of([row for rows in by_paper.values() for row in rows]),
        "earlier": [f"{figure.paper} {figure.name}" for figure in figures if figure.earlier],
        "changed": [
            {
                "paper": one.paper,
                "figure": one.figure,
                "name": one.row.name,
                "claim": one.row.paper,
                "ours": one.row.ours,
                "by_ratio_alone": one.alone,
                "verdict": one.row.verdict,
            }
            for one in changed_rows(figures)
        ],
    }


def _counted(title: str, rows: Sequence[FigureRow]) -> Iterator[str]:
    yield f"{title}: {len(rows)} rows"
    for kind, verdicts in counts_of(rows).items():
        yield f"  {sum(verdicts.values())} {KINDS[kind]}: {spelt(verdicts)}"


def _by_paper(figures: Sequence[KeptFigure]) -> dict[str, list[FigureRow]]:
    by_paper: dict[str, list[FigureRow]] = {}
    for figure in sorted(figures, key=lambda figure: figure.paper):
        by_paper.setdefault(figure.paper, []).extend(figure.rows)
    return by_paper


def _documents(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The files of figures in the folder and below it."""
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(data, dict) and {"figure", "command", "rows"} <= data.keys():
            yield path, data


def _figure(path: Path, data: Mapping[str, Any]) -> KeptFigure:
    """Return the figure. A command for all papers leaves its figures in one folder for each."""
    try:
        paper = data["command"].split()[2]
        rows = tuple(map(_row, data["rows"]))
        earlier = any("judged" not in row for row in data["rows"])
        return KeptFigure(path.parent.name if paper == "all" else paper, data["figure"], rows, earlier)
    except (AssertionError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{path} is no figure of this program ({error}): make it again") from error


def _row(data: Mapping[str, Any]) -> FigureRow:
    row = FigureRow(
        name=data["name"],
        paper=data["paper"],
        ours=data["ours"],
        ratio=data["ratio"],
        verdict=data["verdict"],
        stand_in=data["stand_in"],
        why=data["why"],
        kind=data["kind"],
        judged=_judged(data.get("judged")),
    )
    verdict = judged_again(row)
    return row if verdict == row.verdict else replace(row, verdict=verdict, why=row.why or "judged again")


def _judged(data: Mapping[str, Any] | None) -> Judged | None:
    if data is None:
        return None
    ends = {"low": -inf, "high": inf}
    numbers = {key: end if data[key] is None else data[key] for key, end in ends.items()}
    interval = None if data["interval"] is None else tuple(data["interval"])
    return Judged(**{**data, **numbers, "interval": interval})
