"""A reproduced figure as a table for people and as JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from experiments.common.figure import HELD, MISSED, Figure, FigureRow, Kind, Verdict
from experiments.common.saved import SEED
from servetwin.report.number_text import NOTHING, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES: Final[Mapping[Verdict, str]] = {
    "in band": "green", "out": "red", "not shown": "yellow", "not comparable": "dim",
    "direction held": "green", "direction not held": "red", "direction not shown": "yellow",
}  # fmt: skip
_DIRECTION: Final = "direction "
KINDS: Final[Mapping[Kind, str]] = {
    "paper_number": "held against a number of the paper",
    "paper_direction": "held against its words or a drawing without a number",
    "own_analysis": "held against our own analysis",
}


def print_figure(figure: Figure) -> None:
    """The rows, below them why for what is out or has no number, then plain levels and inputs."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(figure.title, style="bold"))
    console.print(_rows(figure.rows))
    for why, names in _reasons(figure.rows).items():
        console.print(Text(f"  {names}: {why}", style="yellow"), soft_wrap=True)
    if figure.levels:
        _print_levels(console, figure.levels)
    for sentence in figure.inputs:
        console.print(Text(f"  {sentence}", style="dim"), soft_wrap=True)


def as_json(figure: Figure, command: str, commit: str | None, runs: Sequence[str]) -> str:
    """figure, command, commit, counts and rows; and title, inputs, levels and the commands of the runs."""
    data: dict[str, Any] = {
        "figure": figure.name,
        "command": command,
        "commit": commit,
        "counts": counts([figure]),
        "rows": [_finite(asdict(row)) for row in figure.rows],
        "title": figure.title,
        "inputs": list(figure.inputs),
        "levels": [dict(line) for line in figure.levels],
        "runs": list(runs),
    }
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def as_data(figures: Sequence[Figure]) -> dict[str, Any]:
    """All figures for programs: the counts of verdicts, then the rows of each."""
    rows = {figure.name: [_finite(asdict(row)) for row in figure.rows] for figure in figures}
    titles = {figure.name: figure.title for figure in figures}
    return {"counts": counts(figures), "titles": titles, "rows": rows}


def heading(figures: Sequence[Figure]) -> str:
    """The heading: counts of all rows by what they are compared with, then by figure."""
    lines = [tally(figures)]
    if len(figures) > 1:
        width = max(len(figure.name) for figure in figures)
        lines += [f"  {figure.name:{width}s}  {_short(figure)}" for figure in figures]
    return "\n".join(lines)


def tally(figures: Sequence[Figure]) -> str:
    """Return the number of rows by kind and verdict, and how many of the missed rows name a sweep."""
    verdicts_of_kind = counts(figures)
    lines = [f"{sum(map(_all, verdicts_of_kind.values()))} rows"]
    lines += [
        f"  {_all(verdicts_of_kind[kind])} {words}: {spelt(verdicts_of_kind[kind])}"
        for kind, words in KINDS.items()
    ]
    missed, swept = explained(figures)
    if missed:
        lines.append(f"  {missed} are out or not shown: {swept} of them name a sweep beside their seeds")
    return "\n".join(lines)


def counts(figures: Sequence[Figure]) -> dict[Kind, dict[str, int]]:
    """Return kind of claim -> verdict -> number of rows."""
    return counts_of([row for figure in figures for row in figure.rows])


def counts_of(rows: Sequence[FigureRow]) -> dict[Kind, dict[str, int]]:
    """Return the same of these rows."""
    found: list[tuple[str, str]] = [(row.kind, row.verdict) for row in rows]
    return {kind: {name: found.count((kind, name)) for name in _STYLES} for kind in KINDS}


def explained(figures: Sequence[Figure]) -> tuple[int, int]:
    """(rows that are out or not shown, those of them that name a saved sweep beside their seeds)."""
    missed = [row for figure in figures for row in figure.rows if row.verdict in MISSED]
    return len(missed), sum(any(kind != SEED for kind, _ in row.saved) for row in missed)


def _short(figure: Figure) -> str:
    """Kinds the figure has rows of, without verdicts that none of them has."""
    verdicts_of_kind = {kind: verdicts for kind, verdicts in counts([figure]).items() if _all(verdicts)}
    parts = []
    for kind, verdicts in verdicts_of_kind.items():
        some = {verdict: count for verdict, count in verdicts.items() if count}
        parts.append(f"{kind.replace('_', ' ')}: {spelt(some)}")
    return "; ".join(parts)


def _all(verdicts: Mapping[str, int]) -> int:
    return sum(verdicts.values())


def spelt(verdicts: Mapping[str, int]) -> str:
    """Return the counts in words, with those of directions apart, and none of these where no row has one."""
    judged = [
        f"{count} {verdict}" for verdict, count in verdicts.items() if not verdict.startswith(_DIRECTION)
    ]
    parts = [", ".join(judged), in_directions(verdicts)]
    return "; ".join(filter(None, parts))


def in_directions(verdicts: Mapping[str, int]) -> str:
    """Return the counts of changes of less than 5 %: ``direction 2 held, 1 not held, 0 not shown``."""
    found = {verdict: count for verdict, count in verdicts.items() if verdict.startswith(_DIRECTION)}
    parts = [f"{count} {verdict.removeprefix(_DIRECTION)}" for verdict, count in found.items()]
    return f"{_DIRECTION}{', '.join(parts)}" if any(found.values()) else ""


def in_short(verdicts: Mapping[str, int]) -> str:
    """Return the counts as ``9 / 6 / 0 / 0``, directions apart; empty if there is no row."""
    judged = " / ".join(
        str(count) for verdict, count in verdicts.items() if not verdict.startswith(_DIRECTION)
    )
    return "; ".join(filter(None, (judged, in_directions(verdicts)))) if _all(verdicts) else ""


def _rows(rows: Sequence[FigureRow]) -> "Table":
    from rich.text import Text

    table = _table(("name", "held against", "paper", "ours", "ratio", "verdict", "stand-ins"))
    for row in rows:
        ratio = NOTHING if row.ratio is None else number(row.ratio)
        verdict = Text(row.verdict, style=_STYLES[row.verdict])
        cells = (row.name, row.kind.replace("_", " "), row.paper, row.ours or NOTHING, ratio)
        table.add_row(*map(Text, cells), verdict, Text(row.stand_in))
    return table


def _reasons(rows: Sequence[FigureRow]) -> dict[str, str]:
    """Why -> the rows that say so, of those that are not in band."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict not in HELD:
            names.setdefault(row.why, []).append(row.name)
    return {
        why: rows_named[0] if len(rows_named) == 1 else f"{len(rows_named)} rows"
        for why, rows_named in names.items()
    }


def _print_levels(console: "Console", levels: Sequence[Mapping[str, str]]) -> None:
    """One table per value of the first column, which is its title."""
    from rich.text import Text

    first, *titles = levels[0]
    for name in dict.fromkeys(line[first] for line in levels):
        table = _table(tuple(titles))
        table.columns[0].no_wrap = True
        for line in levels:
            if line[first] == name:
                table.add_row(*(Text(line[title] or NOTHING) for title in titles))
        console.print(Text(f"  {name}", style="bold"))
        console.print(table)


def _table(titles: tuple[str, ...]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with None for an infinite ratio or end of a claim, which JSON cannot write."""
    return {
        key: _finite(value)
        if isinstance(value, dict)
        else None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for key, value in row.items()
    }
