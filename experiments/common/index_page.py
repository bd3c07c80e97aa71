"""The index of a reproduction of all papers: counts of verdicts by paper, kind and figure, and the pages."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from experiments.common import html_page, page
from experiments.common.figure import Figure
from experiments.common.shown import KINDS, counts, in_short, tally

FILES: Final = ("index.md", "index.html")
_RULE: Final = (
    "A number is in band if it is within the factor 1.5 of the paper's, or within the bound that its row "
    "names; of a saving or an increase, both the ratio and its distance from 1 are. A change of less than "
    "5 % is a direction, which is held or not and counted apart."
)
_VERDICTS: Final = "in band / out / not shown / not comparable"


def as_markdown(papers: Mapping[str, Sequence[Figure]], command: str, commit: str | None) -> str:
    """Return the counts of all papers, then a table for each with links to its page."""
    figures = [figure for part in papers.values() for figure in part]
    lines = ["```", tally(figures), "```", "", f"    $ {command}", ""]
    if commit:
        lines += [f"Made by commit {commit[:12]}.", ""]
    lines += [_RULE, ""]
    for paper, part in papers.items():
        lines += [f"## [{paper}]({paper}/{page.FILE})", "", f"| {_VERDICTS} | {' | '.join(KINDS.values())} |"]
        lines += ["|---|---|---|---|"]
        lines += [f"| {' | '.join((f'`{name}`', *cells))} |" for name, cells in _rows(part)]
        lines.append("")
    return "\n".join(lines)


def as_html(papers: Mapping[str, Sequence[Figure]], command: str, commit: str | None) -> str:
    """Return the same as a page that opens offline."""
    figures = [figure for part in papers.values() for figure in part]
    made = f"<p>Made by commit {escape(commit[:12])}.</p>" if commit else ""
    head = f"<h1>{escape(command)}</h1>{made}<pre>{escape(tally(figures))}</pre><p>{escape(_RULE)}</p>"
    titles = "".join(f"<th>{escape(title)}</th>" for title in (_VERDICTS, *KINDS.values()))
    body = ""
    for paper, part in papers.items():
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (name, *cells))}</tr>"
            for name, cells in _rows(part)
        )
        link = f'<a href="{escape(paper)}/{html_page.FILE}">{escape(paper)}</a>'
        body += f"<h2>{link}</h2><table><tr>{titles}</tr>{rows}</table>"
    return html_page.document(command, f"{head}{body}")


def _rows(figures: Sequence[Figure]) -> list[tuple[str, list[str]]]:
    """(name, counts by kind) of all figures together and of each."""
    parts = [("all", list(figures)), *((figure.name, [figure]) for figure in figures)]
    return [(name, [in_short(verdicts) for verdicts in counts(some).values()]) for name, some in parts]
