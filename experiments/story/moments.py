"""A journal's lines as events and actions, one at a time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from serving.record.journal import parse_action, parse_event
from serving.record.journal_lines import JournalLines
from serving.vocabulary.actions import Action
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event


class Moment(NamedTuple):
    """One event and what was answered."""

    now_ns: int
    event: Event
    actions: tuple[Action, ...]


class Journal:
    """``moments`` reads it once; ``header`` is known from the first of them on, ``remarks`` at the end."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._lines = JournalLines(lines, name, "told")
        self._name = name
        self.number = 0  # of the line that was read last

    @property
    def header(self) -> dict[str, object]:
        """Source and seed of the run, and more."""
        return self._lines.header

    def moments(self) -> Iterator[Moment]:
        """Raises UserError where the text is none of a journal."""
        for number, now_ns, event, actions, _ in self._lines.entries():
            self.number = number
            try:
                moment = Moment(now_ns, parse_event(event), tuple([parse_action(one) for one in actions]))
            except (TypeError, ValueError, IndexError) as error:
                raise self._lines.altered(number, str(error)) from None
            yield moment

    def misfit(self, error: Exception) -> UserError:
        """The refusal of a line that is one of a journal, and cannot follow those above it."""
        return self._lines.altered(self.number, f"{type(error).__name__} {error}".strip())

    def remarks(self) -> Iterator[str]:
        """That it is cut, or not as it was written."""
        if self._lines.cut is not None:
            yield self._lines.cut
        elif not self._lines.is_as_written():
            yield f"{self._name}: its lines are not those that were written (their sha256 differs)"
