"""Pages and their parts: templates and style sheets are in ``pages/``, parts that repeat are functions here.

A parameter ``html`` is put into the page as it is; every other text is escaped here.
"""

from collections.abc import Container, Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

_PAGES: Final = Path(__file__).parent / "pages"


@cache
def page_file(name: str) -> str:
    """Return the text of a template, style sheet or script in ``pages/``."""
    return (_PAGES / name).read_text(encoding="utf-8")


def filled(name: str, **html: str) -> str:
    """Return the template ``name`` with every ``$word`` in it replaced."""
    return Template(page_file(name)).substitute(html)


def page(title: str, html: Iterable[str], styles: Sequence[str], policy: str = "") -> str:
    """Return a page that makes no requests. ``policy``: what it allows beside styles (CSP)."""
    style = "".join(map(page_file, styles))
    return filled("page.html", title=escape(title), style=style, policy=policy, body="".join(html))


def header(kind: str, title: str, claim: str, html: str = "") -> str:
    """Return the head of a page; ``html`` follows the claim."""
    return filled("header.html", kind=kind, title=escape(title), claim=escape(claim), more=html)


def remarks(texts: Iterable[str], kind: str = "note") -> str:
    """Return paragraphs to read before the numbers; ``kind``: ``note`` for a warning, ``said`` for a fact."""
    return "".join(f'<p class="{kind}">{escape(text)}</p>' for text in texts)


def card(title: str, html: str, kind: str = "card") -> str:
    """Return a titled card; ``kind``: its classes."""
    return f'<h2>{escape(title)}</h2><div class="{kind}">{html}</div>'


def charts(title: str, html: Iterable[str]) -> str:
    """Return a titled section of cards, two beside each other on a wide screen."""
    return f'<h2>{escape(title)}</h2><section class="grid2">{"".join(html)}</section>'


def head(names: Iterable[str], words: Container[int] = (), kind: str = "") -> str:
    """Return the head row of a table; ``words``: places of columns aligned at the left."""
    left_style = ' style="text-align:left"'
    cells = [f"<th{left_style if at in words else ''}>{escape(name)}</th>" for at, name in enumerate(names)]
    return row(cells, kind)


def row(html: Iterable[str], kind: str = "") -> str:
    """Return a row of a table from its cells."""
    return f"<tr{_class(kind)}>{''.join(html)}</tr>"


def cell(text: str, kind: str = "", name: str = "") -> str:
    """Return a cell. ``name``: the name of its column, which a narrow screen displays beside it."""
    shown = f' data-name="{escape(name)}"' if name else ""
    return f"<td{_class(kind)}{shown}>{escape(text)}</td>"


def table(html: Iterable[str], kind: str = "") -> str:
    """Return a table from its rows."""
    return f"<table{_class(kind)}>{''.join(html)}</table>"


def named_rows(rows: Iterable[tuple[str, str]], kind: str = "") -> str:
    """Return a table of names, each with a text; empty without rows."""
    lines = [row([cell(name, "name"), cell(text, "text")]) for name, text in rows]
    return table(lines, kind) if lines else ""


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    items = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in rows)
    return f"<dl>{''.join(items)}</dl>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
