"""The section Decisions of a run's report: from its journal, with a filter by kind and text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Final

from servetwin.report.number_text import count, counted, duration
from servetwin.report.page_parts import filled, head, page_file
from serving.record.journal import parse_action
from serving.vocabulary import actions

MOST_ROWS: Final = 2000  # filtered without delay, in a page below a megabyte
MOST_LINES: Final = 40_000  # of the journal: 0.2 s to read (two busy cores)
# Of one kind: one decision per request must leave room for rare kinds.
_MOST_OF_A_KIND: Final = 400
# Follow from every step, so they are left out; servetwin timeline shows each.
USUAL: Final = (actions.Run, actions.Interrupt, actions.Wake, actions.JoinBatch)
_WHO: Final = {
    "Assign": "dispatch",
    "Reject": "admission",
    "Preempt": "KV memory",
    "Detach": "migration",
    "Migrate": "migration",
    "Fail": "controller",
    "Abort": "controller",
    "AllocateGpus": "scaling",
    "SwitchRole": "scaling",
    "ReleaseGpus": "scaling",
    "Load": "loading",
    "StopLoad": "loading",
    "Send": "hand-over",
    "StopSend": "hand-over",
}
_SCRIPT: Final = "decisions.js"
_HEAD: Final = ("Time", "Who", "What", "About", "Why")


def script_policy() -> str:
    """Return what a Content-Security-Policy must add to allow only this script."""
    return f"; script-src 'sha256-{b64encode(sha256(page_file(_SCRIPT).encode()).digest()).decode()}'"


def decisions(journal: Path | None) -> str:
    """Return HTML with a script; empty without a journal or a decision in it."""
    if journal is None or not journal.is_file():
        return ""
    decided, read_all = _read(journal)
    if not decided:
        return ""
    kinds: Counter[str] = Counter(kind for _, _, kind, _, _ in decided)
    options = "".join(f"<option>{kind}</option>" for kind in sorted(kinds))
    rows = head(_HEAD, range(len(_HEAD)), "head") + "".join(map(_row, decided))
    note, script = escape(_note(decided, read_all)), page_file(_SCRIPT)
    return filled("decisions.html", kinds=options, note=note, rows=rows, script=script)


Decision = tuple[int, str, str, str, str]


def _read(journal: Path) -> tuple[list[Decision], bool]:
    """Return decisions in order of time, and whether they are complete."""
    shown, of_kind, whole = list[Decision](), Counter[str](), True
    with journal.open(encoding="utf-8") as file:
        for text in islice(file, MOST_LINES):
            for decision in _of_line(text):
                of_kind[decision[2]] += 1
                if of_kind[decision[2]] > _MOST_OF_A_KIND or len(shown) >= MOST_ROWS:
                    whole = False
                else:
                    shown.append(decision)
        return shown, whole and not file.readline()


def _of_line(text: str) -> Iterator[Decision]:
    line = json.loads(text)
    if not isinstance(line, list):
        return
    for fields in line[2]:
        action = parse_action(fields)
        if not isinstance(action, USUAL):
            kind = type(action).__name__
            yield line[0], _WHO.get(kind, ""), kind, about(action), action.reason


def _note(decided: list[Decision], read_all: bool) -> str:
    usual = "Steps of the engine are not listed: servetwin timeline shows them."
    if read_all:
        return f"{counted(len(decided), 'decision')} of the journal. {usual}"
    return (
        f"The journal is long: shown are the first {_MOST_OF_A_KIND} decisions of each kind, at most "
        f"{count(MOST_ROWS)}, within its first {count(MOST_LINES)} lines. {usual} servetwin story tells "
        "all of a request or an instance."
    )


def about(action: Any) -> str:
    """Return the request, instance, load or transfer of an action: ``request 3, replica 0``."""
    named = [
        f"{name} {getattr(action, name)}"
        for name in ("request", "replica", "source", "target", "load", "transfer", "role")
        if hasattr(action, name)
    ]
    if requests := getattr(action, "requests", ()):
        more = f" and {len(requests) - 4} more" if len(requests) > 4 else ""
        plural = "" if len(requests) == 1 else "s"
        named.append(f"request{plural} {', '.join(map(str, requests[:4]))}{more}")
    if isinstance(action, actions.Load):
        named.append(f"from {_ends(action.sources)} to {_ends(action.targets)}")
    return ", ".join(named)


def _ends(places: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{kind} {number}" for kind, number in dict.fromkeys(places))


def _row(decision: Decision) -> str:
    now_ns, part, kind, subject, why = decision
    cells = zip(_HEAD[1:], (part, kind, subject, why), strict=True)
    rest = "".join(f'<td class="text" data-name="{name}"><span>{escape(t)}</span></td>' for name, t in cells)
    when = f'<td class="name" data-name="Time">{duration(now_ns / 1e6)}</td>'
    return f'<tr data-kind="{kind}">{when}{rest}</tr>'
