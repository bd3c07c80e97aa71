"""The frame of pages about several runs: one self-contained file, without requests or scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from servetwin.report import page_parts
from servetwin.report.page_parts import card, head, header, row

# The report's palette has three colours; several runs need more.
COLORS: Final = 8
_STYLES: Final = ("report.css", "range.css", "answer.css")


def page(kind: str, title: str, claim: str, parts: Iterable[str], foot: str) -> str:
    """Return the HTML of a page; ``parts`` are sections of HTML, the other texts are escaped here."""
    body = [header(escape(kind), title, claim), *parts, f"<footer>{escape(foot)}</footer>"]
    return page_parts.page(title, body, _STYLES)


def answer(text: str) -> str:
    """Return the paragraph that answers the reader's question."""
    return f'<p class="answer">{escape(text)}</p>'


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return a table that scrolls in its card on a narrow screen; the first ``words`` columns hold words."""
    lines = [
        row(_cell(name, text, at < words) for at, (name, text) in enumerate(zip(names, texts)))
        for texts in rows
    ]
    inner = page_parts.table([head(names, range(words), "head"), *lines], "blocks")
    return card(title, inner, "card scroll")


def _cell(name: str, text: str, is_words: bool) -> str:
    """Return a cell without line breaks in numbers: a remark in brackets moves to the next line first."""
    name = f' data-name="{escape(name)}"' if name else ""
    if is_words:
        return f'<td class="text"{name}><span>{escape(text)}</span></td>'
    number, bracket, remark = text.partition(" (")
    value, sign, half = number.partition(" ± ")
    parts = [value, *([f"± {half}"] if sign else [])]
    inner = " ".join(f'<span class="part">{escape(part)}</span>' for part in parts)
    inner += f" ({escape(remark)}" if bracket else ""
    return f"<td{name}><span>{inner}</span></td>"


def command(words: str) -> str:
    """Return the command that made the page."""
    return card("Command", f"<pre>{escape(words)}</pre>")
