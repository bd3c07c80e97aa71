"""The frame of pages about several runs: one self-contained file, without requests or scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from servetwin.report.style import RANGE_STYLE, STYLE

# The report's palette has three colours; several runs need more.
COLORS: Final = 8
_MORE: Final = """
:root{--c4:#8a4bc0;--c5:#b5283f;--c6:#5d6b2d;--c7:#0b6fa4;--c8:#8d6e63}
@media(prefers-color-scheme:dark){:root{--c4:#c79bf0;--c5:#ef7f90;--c6:#b4c27a;--c7:#63bdea;--c8:#c9a99d}}
.l4,.l5,.l6,.l7,.l8{fill:none;stroke-width:2;stroke-linejoin:round}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}.l8{stroke:var(--c8)}
.p4,.p5,.p6,.p7,.p8{fill:none;stroke-linecap:round;opacity:.55}
.p4{stroke:var(--c4)}.p5{stroke:var(--c5)}.p6{stroke:var(--c6)}.p7{stroke:var(--c7)}.p8{stroke:var(--c8)}
.b4{background:var(--c4)}.b5{background:var(--c5)}.b6{background:var(--c6)}.b7{background:var(--c7)}
.b8{background:var(--c8)}
td.best{color:var(--good);font-weight:650}tr.off td{color:var(--soft)}
.answer{font-size:19px;line-height:1.45;margin:18px 0 0;overflow-wrap:break-word}
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(kind: str, title: str, claim: str, parts: Iterable[str], foot: str) -> str:
    """Return the HTML of a page; ``parts`` are sections of HTML, the other texts are escaped here."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>ServeTwin: {escape(title)}</title><style>{STYLE}{RANGE_STYLE}{_MORE}</style></head>"
        f'<body><main><header><p class="kind">{escape(kind)}</p><h1>{escape(title)}</h1>'
        f'<p class="claim">{escape(claim)}</p></header>{"".join(parts)}'
        f"<footer>{escape(foot)}</footer></main></body></html>\n"
    )


def answer(text: str) -> str:
    """Return the paragraph that answers the reader's question."""
    return f'<p class="answer">{escape(text)}</p>'


def notes(texts: Iterable[str]) -> str:
    """Return the notes to read before the numbers."""
    return "".join(f'<p class="note">{escape(text)}</p>' for text in texts)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return a table that scrolls in its card on a narrow screen; the first ``words`` columns hold words."""
    top = "".join(
        f'<th style="text-align:left">{escape(name)}</th>' if place < words else f"<th>{escape(name)}</th>"
        for place, name in enumerate(head)
    )
    body = "".join(
        f"<tr>{''.join(_cell(name, cell, at < words) for at, (name, cell) in enumerate(zip(head, row)))}</tr>"
        for row in rows
    )
    inner = f'<table class="blocks"><tr class="head">{top}</tr>{body}</table>'
    return f'<h2>{escape(title)}</h2><div class="card scroll">{inner}</div>'


def _cell(name: str, text: str, is_words: bool) -> str:
    """Return a cell without line breaks in numbers: a remark in brackets moves to the next line first."""
    name = f' data-name="{escape(name)}"' if name else ""
    if is_words:
        return f'<td class="text"{name}><span>{escape(text)}</span></td>'
    number, bracket, remark = text.partition(" (")
    value, sign, half = number.partition(" ± ")
    parts = [value, *([f"± {half}"] if sign else [])]
    inner = " ".join(f'<span class="part">{escape(one)}</span>' for one in parts)
    inner += f" ({escape(remark)}" if bracket else ""
    return f"<td{name}><span>{inner}</span></td>"


def command(words: str) -> str:
    """Return the command that made the page."""
    return f'<h2>Command</h2><div class="card"><pre>{escape(words)}</pre></div>'
