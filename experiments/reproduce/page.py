"""A reproduction as a page of Markdown: counts first, then what stands in, then every row that is out."""

from collections.abc import Sequence
from typing import Final

from experiments.reproduce.figure import Figure, Row
from experiments.reproduce.shown import counts, tally

FILE: Final = "page.md"


def as_page(figures: Sequence[Figure], command: str, commit: str | None) -> str:
    """Counts by figure, stand-ins, and the rows that are out, each with why."""
    lines = [f"**{tally(figures)}**", "", f"    $ {command}", ""]
    if commit:
        lines += [f"Made by commit {commit[:12]}.", ""]
    lines += ["| figure | in band | out | not comparable | of |", "|---|---|---|---|---|"]
    for figure in figures:
        found = list(counts([figure]).values())
        lines.append(
            f"| {_cell(figure.title)} (`{figure.name}`) | {' | '.join(map(str, found))} | {sum(found)} |"
        )
    lines += _stand_ins(figures)
    for figure in figures:
        lines += _misses(figure)
    return "\n".join(lines) + "\n"


def _stand_ins(figures: Sequence[Figure]) -> list[str]:
    """What stood in for something that cannot be had, and in which figures."""
    where: dict[str, dict[str, None]] = {}
    for figure in figures:
        for row in figure.rows:
            for part in filter(None, row.stand_in.split("; ")):
                where.setdefault(part, {})[figure.name] = None
    if not where:
        return []
    told = [f"| {_cell(part)} | {', '.join(names)} |" for part, names in where.items()]
    return ["", "| what stands in | figures |", "|---|---|", *told]


def _misses(figure: Figure) -> list[str]:
    """A table of the rows that are out; rows with the same reason stand together as the figure has them."""
    out = [row for row in figure.rows if row.verdict == "out"]
    if not out:
        return []
    return [
        "",
        f"**{figure.title}**",
        "",
        "| row | ours | paper | why |",
        "|---|---|---|---|",
        *map(_miss, out),
    ]


def _miss(row: Row) -> str:
    return f"| {_cell(row.name)} | {_cell(row.ours)} | {_cell(row.paper)} | {_cell(row.why)} |"


def _cell(text: str) -> str:
    """A bar inside a cell would end it."""
    return text.replace("|", "\\|")
