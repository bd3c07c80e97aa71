"""The first difference between two journals, with the event that led to it."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import lines_of
from servetwin.results.journal_file import NAME
from serving.record.journal import parse_action
from serving.record.json_text import json_data
from serving.vocabulary.actions import Action
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

_SHORT: Final = 160
OBSERVED, DECIDED, ENDED = "observation", "decision", "end"


@dataclass(frozen=True, slots=True)
class Divergence:
    """``kind``: ``observation`` if the worlds report different events; else only the answers to one differ.

    ``events``: the number of events before it that are equal, and whose answers are equal. ``first`` and
    ``second``: the event and its answer as one line; empty if a journal had ended.
    """

    kind: str
    events: int
    first: str
    second: str

    def text(self, names: tuple[str, str]) -> list[str]:
        """Return readable lines."""
        explanation = {
            OBSERVED: "then the worlds report different events",
            DECIDED: "then the same event is answered differently",
            ENDED: "then one journal ends",
        }[self.kind]
        lines = [f"first difference: {self.events} events and their answers are alike, {explanation}"]
        return [
            *lines,
            f"  {names[0]}: {self.first or 'nothing more'}",
            f"  {names[1]}: {self.second or 'nothing more'}",
        ]


def divergence_of(first: Path, second: Path) -> Divergence | None:
    """Compare two result folders; None if their journals agree, or one has none.

    Reasons are not compared: the same action for another reason is the same.
    """
    if not ((first / NAME).is_file() and (second / NAME).is_file()):
        return None
    pairs = zip_longest(journal_lines(first / NAME), journal_lines(second / NAME))
    with parsing(second / NAME):
        for count, (pair, other) in enumerate(pairs):
            if pair is None or other is None:
                return Divergence(ENDED, count, _line_text(pair), _line_text(other))
            if pair[:2] != other[:2]:
                return Divergence(OBSERVED, count, _line_text(pair), _line_text(other))
            if pair[2] != other[2] and _done(pair[2]) != _done(other[2]):
                return Divergence(DECIDED, count, _line_text(pair), _line_text(other))
    return None


@contextmanager
def parsing(path: Path) -> Iterator[None]:
    """Wrap the use of a journal's lines: what is no event or action is a UserError."""
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} is cut or altered ({error}): use a journal as it was written") from None


def journal_lines(path: Path) -> Iterator[list[Any]]:
    """Yield events with their answers; header and footer are objects, not lists."""
    with parsing(path):
        for number, text in enumerate(lines_of(path), 1):
            match json_data(text):
                case [int(), [*_], [*_], *_] as found:
                    yield found
                case [*_]:
                    raise ValueError(f"line {number} is not [time, event, actions]")


def _done(actions: list[list[Any]]) -> list[Action]:
    return [dataclasses.replace(parse_action(fields), reason="") for fields in actions]


def _line_text(line: list[Any] | None) -> str:
    if line is None:
        return ""
    text = f"{line[0] / NS_PER_S:.6f} s, {json.dumps(line[1])} -> {json.dumps(line[2])}"
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."


def changed_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map dotted key to both values, for differing keys of two configurations; ignores where results are."""
    ours, other = dict(_leaves(first)), dict(_leaves(second))
    keys = [key for key in {**ours, **other} if key not in ("out", "overwrite")]
    return {key: (ours.get(key), other.get(key)) for key in keys if ours.get(key) != other.get(key)}


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
