"""A reproduction as a page of Markdown: counts first, then what stands in, then every row that is missed."""

from collections.abc import Sequence
from typing import Final

from experiments.common.figure import MISSED, Figure, FigureRow
from experiments.common.shown import KINDS, counts, explained, in_short, spelt

FILE: Final = "page.md"


def as_page(figures: Sequence[Figure], command: str, commit: str | None) -> str:
    """Counts by kind and figure, stand-ins, and the rows that are out or not shown, each with why."""
    lines = [*_count_lines(figures), "", f"    $ {command}", ""]
    if commit:
        lines += [f"Made by commit {commit[:12]}.", ""]
    lines += [f"| figure (in band, out, not shown, not comparable) | {' | '.join(KINDS.values())} | rows |"]
    lines += ["|---|---|---|---|---|"]
    for figure in figures:
        cells = [in_short(verdicts) for verdicts in counts([figure]).values()]
        name = f"{_cell(figure.title)} (`{figure.name}`)"
        lines.append(f"| {name} | {' | '.join(cells)} | {len(figure.rows)} |")
    lines += _stand_ins(figures)
    for figure in figures:
        lines += _misses(figure) if figure.rows else _alone(figure)
    return "\n".join(lines) + "\n"


def _count_lines(figures: Sequence[Figure]) -> list[str]:
    """The counts that head the page, one line for each kind of row."""
    verdicts_of_kind = counts(figures)
    lines = [f"**{sum(len(figure.rows) for figure in figures)} rows**", ""]
    for kind, words in KINDS.items():
        verdicts = verdicts_of_kind[kind]
        lines.append(f"* **{sum(verdicts.values())} {words}: {spelt(verdicts)}**")
    missed, swept = explained(figures)
    return [*lines, f"* {missed} are out or not shown; {swept} of them name a sweep beside their seeds"]


def _stand_ins(figures: Sequence[Figure]) -> list[str]:
    """Name each stand-in for something that is not available, and its figures."""
    where: dict[str, dict[str, None]] = {}
    for figure in figures:
        for row in figure.rows:
            for part in filter(None, row.stand_in.split("; ")):
                where.setdefault(part, {})[figure.name] = None
    if not where:
        return []
    lines = [f"| {_cell(part)} | {', '.join(names)} |" for part, names in where.items()]
    return ["", "| what stands in | figures |", "|---|---|", *lines]


def _misses(figure: Figure) -> list[str]:
    """A table of the rows that are out or not shown, as the figure has them."""
    out = [row for row in figure.rows if row.verdict in MISSED]
    if not out:
        return []
    return [
        "",
        f"**{figure.title}**",
        "",
        "| row | held against | verdict | ours | paper | why |",
        "|---|---|---|---|---|---|",
        *map(_miss, out),
    ]


def _alone(figure: Figure) -> list[str]:
    """Return what the figure was made from and its levels: nothing is published to compare them with."""
    lines = ["", f"**{figure.title}**: ours alone", "", *(f"* {sentence}" for sentence in figure.inputs)]
    if figure.levels:
        titles = list(figure.levels[0])
        lines += ["", f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
        lines += [f"| {' | '.join(_cell(line[title]) for title in titles)} |" for line in figure.levels]
    return [*lines, "", f"![{figure.title}]({figure.name}.png)"]


def _miss(row: FigureRow) -> str:
    cells = (row.name, row.kind.replace("_", " "), row.verdict, row.ours, row.paper, row.why)
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """A bar inside a cell would end it."""
    return text.replace("|", "\\|")
