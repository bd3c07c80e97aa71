"""python -m scripts.journal_page: writes the records of a journal into docs/reference/JOURNAL.

A table stands between ``<!-- records: events -->`` (or ``actions``) and ``<!-- end of records -->``. Its rows
are the classes of the vocabulary, with their fields and the first sentence of their docstring.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event
from serving.vocabulary.request import Request

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "JOURNAL.md"
KINDS: Final[dict[str, tuple[type, ...]]] = {
    "events": typing.get_args(Event), "actions": typing.get_args(Action)
}  # fmt: skip
_TABLE: Final = re.compile(r"<!-- records: (\S+) -->\n.*?<!-- end of records -->", re.DOTALL)


def with_records(page: str) -> str:
    """Return the page's text with its tables as the vocabulary has them."""
    return _TABLE.sub(lambda mark: "\n".join(_table(mark[1])), page)


def record_name(cls: type) -> str:
    """The word with which the record begins in a journal."""
    return cls.__name__.lower()


def _table(kind: str) -> Iterator[str]:
    yield from (f"<!-- records: {kind} -->", "|record|fields|meaning|", "|---|---|---|")
    for cls in KINDS[kind]:
        fields = ", ".join(f"`{name}`" for name in _fields(cls))
        yield f"|`{record_name(cls)}`|{fields}|{_meaning(cls)}|"
    yield "<!-- end of records -->"


def _meaning(cls: type) -> str:
    first = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".").replace("``", "`") + "."


def _fields(cls: type) -> Iterator[str]:
    """The names of the fields, in place of a request its own."""
    for one in dataclasses.fields(cls):
        yield from (each.name for each in dataclasses.fields(Request)) if one.type is Request else (one.name,)


if __name__ == "__main__":
    PAGE.write_text(with_records(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
