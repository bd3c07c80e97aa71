"""Reads a journal's lines as events and actions, one at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from serving.record.journal import parse_action, parse_event
from serving.record.journal_lines import JournalLines
from serving.vocabulary.actions import Action
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event


class Moment(NamedTuple):
    """One event and the actions that answered it."""

    now_ns: int
    event: Event
    actions: tuple[Action, ...]


class JournalReader:
    """``moments`` reads it once; ``header`` is known from the first moment on, ``remarks`` at the end."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._lines = JournalLines(lines, name, "told")
        self._name = name
        self.number = 0  # of the last line read

    @property
    def header(self) -> dict[str, object]:
        """Source and seed of the run, and other fields."""
        return self._lines.header

    def moments(self) -> Iterator[Moment]:
        """Yield the moments. UserError if the text is not a journal."""
        for number, now_ns, event, actions, _ in self._lines.entries():
            self.number = number
            try:
                moment = Moment(
                    now_ns, parse_event(event), tuple([parse_action(action) for action in actions])
                )
            except (TypeError, ValueError, IndexError) as error:
                raise self._lines.altered(number, str(error)) from None
            yield moment

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Wrap reading: bytes that are no text, and lines that cannot follow those above, are UserErrors."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self._name} is not text ({error.reason}): use a journal as it was written"
            ) from None
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            raise self._lines.altered(self.number, f"{type(error).__name__} {error}".strip()) from None

    def remarks(self) -> Iterator[str]:
        """Yield a remark if the journal is truncated or has changed since it was written."""
        if self._lines.cut is not None:
            yield self._lines.cut
        elif not self._lines.is_as_written():
            yield f"{self._name}: its lines are not those that were written (their sha256 differs)"
