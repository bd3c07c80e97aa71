"""Reads the lines of a journal one after the other, for comparison or for display."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from serving.record.journal import ACTION_NAMES, FORMAT
from serving.vocabulary.errors import UserError

# Line number, time, the event as an array, the actions that answered it, likewise, and the step counts that
# the driver was asked for and returned (``serving.vocabulary.step_counts``).
Entry = tuple[int, int, list[Any], list[Any], list[int]]


class JournalLines:
    """Header, entries and footer, one line in memory at a time; UserError for an invalid line.

    ``cut``, at the end of the entries: a sentence if there was no footer. ``done``: a word for what the
    reader does with the journal.
    """

    def __init__(self, lines: Iterable[str], name: str, done: str = "compared") -> None:
        self._lines = enumerate(lines, start=1)
        self._name = name
        self._done = done
        self._digest = sha256()
        self._footer: dict[str, Any] = {}
        self.header: dict[str, object] = {}
        self.cut: str | None = None

    def entries(self) -> Iterator[Entry]:
        """Yield the entries between header and footer."""
        _, text = next(self._lines, (0, ""))
        self.header = read_header(self._parsed(1, text), self._name)
        self._hash(text)
        yield from self._rest()

    def _rest(self) -> Iterator[Entry]:
        number = 1
        for number, text in self._lines:
            match self._entry(number, text):
                case None if self.cut is not None:
                    return
                case [int(now_ns), list(event), list(actions)]:
                    self._hash(text)
                    yield number, now_ns, event, actions, []
                case [int(now_ns), list(event), list(actions), list(answers)] if _are_counts(answers):
                    self._hash(text)
                    yield number, now_ns, event, actions, answers
                case dict(footer):
                    self._footer = footer
                    self._end()
                    return
                case _:
                    raise self.altered(number, "the line is not [time, event, actions]")
        self.cut = self._cut(f"ends behind line {number}")

    def _entry(self, number: int, text: str) -> Any:
        """A line's content; None, with ``cut`` set, for a last line that is incomplete."""
        try:
            return self._parsed(number, text)
        except UserError:
            begun = text == "" or text[0] in "[{"
            if text.endswith("\n") or not begun or next(self._lines, None) is not None:
                raise
        self.cut = self._cut(f"breaks off in line {number}")
        return None

    def _cut(self, where: str) -> str:
        return (
            f"{self._name} {where} and has no footer: its run was ended before it was complete, and only "
            f"the lines before are {self._done}"
        )

    def complaints(self, events: int, actions: int, in_flight: int) -> Iterator[str]:
        """What is wrong even if every action is as recorded."""
        counted = {"events": events, "actions": actions}
        if any(self._footer.get(key) != value for key, value in counted.items()):
            yield f"footer: the footer has {self._footer}, the journal has {counted}"
        elif in_flight:
            yield f"after the last line: {in_flight} requests are still in flight"
        elif self._footer.get("sha256") != self._digest.hexdigest():
            yield "footer: the lines above were changed (their sha256 differs)"

    def is_intact(self) -> bool:
        """Whether the text is as it was written; reads the rest of it."""
        try:
            for _ in self._rest():
                pass
        except UserError:
            return False
        return self.is_as_written()

    def is_as_written(self) -> bool:
        """Whether the footer's digest matches the lines; call at the end of the entries."""
        return self._footer.get("sha256") == self._digest.hexdigest()

    def _end(self) -> None:
        for number, text in self._lines:
            if text.strip():
                raise UserError(
                    f"{self._name}: line {number} follows the footer; use a journal as it was written"
                )

    def _hash(self, text: str) -> None:
        self._digest.update(text.rstrip("\n").encode(errors="surrogatepass") + b"\n")

    def _parsed(self, number: int, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.altered(number, str(error)) from None

    def altered(self, number: int, why: str) -> UserError:
        """The error for an altered line."""
        return UserError(
            f"{self._name}: line {number} is cut or altered ({why}); use a journal as it was written"
        )


def _are_counts(answers: list[Any]) -> bool:
    return bool(answers) and all(type(answer) is int and answer >= 0 for answer in answers)


def read_header(record: object, name: str) -> dict[str, object]:
    """The header's fields. Raises UserError if this is no journal of this format."""
    version = record.get("servetwin_journal") if isinstance(record, dict) else None
    if not isinstance(record, dict) or type(version) is not int:
        raise UserError(f"{name}: the first line is not a ServeTwin journal header of format {FORMAT}")
    if version != FORMAT:
        raise UserError(
            f"{name}: the first line is a journal header of format {version}, and this version reads format "
            f"{FORMAT}: run again, or read it with the version that wrote it"
        )
    carries_out(record, name)
    return record


def carries_out(header: Mapping[str, object], name: str) -> frozenset[str]:
    """Names of the actions that the driver carried out. Raises UserError if the header has none."""
    names = header.get("carries_out")
    if not isinstance(names, list) or not all(type(one) is str and one in ACTION_NAMES for one in names):
        raise UserError(
            f"{name}: the first line has carries_out {names!r}, not a list of names of actions: use a "
            "journal as it was written"
        )
    return frozenset(names)
