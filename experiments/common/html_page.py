"""A reproduction as one HTML page that opens offline: every row of every figure, and the pictures."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from experiments.common.figure import Figure, FigureRow
from experiments.common.shown import heading
from servetwin.report.number_text import NOTHING, number
from servetwin.report.page_parts import page_file

FILE: Final = "page.html"
# Forbids the page every outside address, whatever text ends up in it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TITLES: Final = ("row", "held against", "paper", "ours", "ours / paper", "verdict", "why")
_MORE: Final = (
    "main{max-width:90em}img{max-width:100%}td,th{text-align:left;vertical-align:top;padding:2px 8px}"
)


def as_html(figures: Sequence[Figure], command: str, commit: str | None, folder: Path) -> str:
    """Counts, then figure by figure; the pictures are those in ``folder``."""
    made = f"<p>Made by commit {escape(commit[:12])}.</p>" if commit else ""
    head = f"<h1>{escape(command)}</h1>{made}<pre>{escape(heading(figures))}</pre>"
    body = "".join(_section(figure, folder / f"{figure.name}.png") for figure in figures)
    return document(command, f"{head}{body}")


def document(title: str, html: str) -> str:
    """Return a page of this content that opens offline."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{page_file('report.css')}{_MORE}</style></head>"
        f"<body><main>{html}</main></body></html>\n"
    )


def _section(figure: Figure, picture: Path) -> str:
    inputs = "".join(f"<li>{escape(sentence)}</li>" for sentence in figure.inputs)
    data = base64.b64encode(picture.read_bytes()).decode()
    rows = "".join(map(_row, figure.rows))
    titles = "".join(f"<th>{title}</th>" for title in _TITLES)
    return (
        f"<h2>{escape(figure.title)}</h2><ul>{inputs}</ul><table><tr>{titles}</tr>{rows}</table>"
        f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{data}">'
    )


def _row(row: FigureRow) -> str:
    ratio = NOTHING if row.ratio is None else number(row.ratio)
    held = row.kind.replace("_", " ")
    cells = (row.name, held, row.paper, row.ours or NOTHING, ratio, row.verdict, row.why)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
