"""JSON read strictly: objects line by line, their values, and the requests made of them.

Strict means: no NaN or Infinity, no key twice, no text that is not UTF-8; true and false are no numbers, and
numbers with a fraction stay the decimals that were written (never binary floats). Times are numbers of some
unit, exact, or dates.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.columns import Names
from traces.csv.stamp import Stamp
from traces.errors import TraceError
from traces.reading import line_blocks
from traces.times import DIGITS, ISO, OTHER_UNIT, WORDS
from traces.workload import INT64_MAX, MAX_TOKENS

_SHOWN_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a sentence points: a file and its n-th line (the first is 1), or whatever ``unit`` counts."""

    path: Path
    number: int
    unit: str = "line"

    def error(self, problem: str, remedy: str, key: str | None = None) -> TraceError:
        """TraceError that names the place, the key if there is one, the problem and the remedy."""
        where = f"{self.path}, {self.unit} {self.number}" + (f", key {key}" if key else "")
        return TraceError(f"{where}: {problem}: {remedy}")


def line_of(path: Path) -> Callable[[int], Spot]:
    """Where a row (the first is 0) of a file of JSON lines stands: they have no header."""
    return lambda row: Spot(path, row + 1)


class JsonProblem(Exception):
    """What is wrong with a JSON text, as half a sentence; raised inside the decoder, which knows no place."""


def json_rows(path: Path, example: str) -> Iterator[tuple[Spot, dict[str, Any]]]:
    """(place, object) of every line; ``example`` is a line as it should be, for the sentences.

    Empty lines may stand at the end only. Raises TraceError for a line that is no JSON object, and when there
    is none at all.
    """
    number = blank = 0
    for block in line_blocks(path):
        for text in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if not text.strip(b" \t\r"):
                blank = blank or number
                continue
            if blank:
                raise Spot(path, blank).error("the line is empty", f"delete it, or write {example}")
            spot = Spot(path, number)
            yield spot, _object_in(text, spot, example)
    if number == 0 or blank == 1:
        raise TraceError(f"{path} has no requests: write one line for each, such as {example}")


def first_row(path: Path, example: str) -> dict[str, Any]:
    """The object of the first line. Raises TraceError as ``json_rows`` does."""
    _, row = next(json_rows(path, example))
    return row


def _object_in(text: bytes, spot: Spot, example: str) -> dict[str, Any]:
    try:
        value = STRICT.decode(text.decode("utf-8"))
    except (ValueError, RecursionError, JsonProblem) as error:
        raise spot.error(json_problem(error), f"write one JSON object, such as {example}") from error
    if not isinstance(value, dict):
        raise spot.error(f"{shown(value)} is not a JSON object", f"write {example}")
    return value


def json_problem(error: Exception) -> str:
    """Half a sentence on why ``STRICT`` refused a text."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg.lower()}, character {error.pos + 1}"
    if isinstance(error, JsonProblem):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8 text"
    return "it is nested too deep" if isinstance(error, RecursionError) else "a number has too many digits"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        twice = next(key for key in keys if keys[key] > 1)
        raise JsonProblem(f"the key {shown(twice)} occurs twice")
    return entries


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:  # an exponent of more digits than any number has
        raise JsonProblem(f"{shorter(text)} is out of range") from error


def _constant(text: str) -> Any:
    raise JsonProblem(f"{text} is not a JSON number")


STRICT: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_decimal, parse_constant=_constant)
"""The decoder of all readers; ``json_problem`` explains its ValueError, RecursionError and JsonProblem."""


def shorter(text: str) -> str:
    """At most 40 characters of a text."""
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def shown(value: Any) -> str:
    """A value as a sentence shows it: short, and never the inside of a list or an object."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return repr(shorter(value))
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return shorter(str(value))


def whole(row: dict[str, Any], key: str, spot: Spot, least: int = 0, most: int = MAX_TOKENS) -> int:
    """The whole number under ``key``, from ``least`` to ``most``; otherwise TraceError."""
    value = row.get(key)
    if type(value) is int and least <= value <= most:
        return value
    raise not_whole(value, key, spot, least, most)


def not_whole(value: Any, key: str, spot: Spot, least: int, most: int) -> TraceError:
    """The sentence for a value that is no whole number from ``least`` to ``most``."""
    if value is None:
        return spot.error("the value is missing", f"write a whole number from {least} to {most}", key)
    if type(value) is int:
        return spot.error(
            f"{shown(value)} is out of range", f"write a whole number from {least} to {most}", key
        )
    if isinstance(value, Decimal) and 0 <= value <= INT64_MAX and value == value.to_integral_value():
        return spot.error(f"{shown(value)} is written as a fraction", f"write {int(value)}", key)
    return spot.error(
        f"{shown(value)} is not a whole number", f"write a whole number from {least} to {most}", key
    )


def word(row: dict[str, Any], key: str, spot: Spot) -> str | None:
    """The text (or whole number, as text) under ``key``; None where it is missing, null or empty."""
    value = row.get(key)
    if value is None or value == "":
        return None
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise spot.error(f"{shown(value)} is not a name", "write a text in quotes", key)
    if not value.isprintable() and any("\ud800" <= char <= "\udfff" for char in value):
        raise spot.error("the name has half a surrogate pair", "write whole characters", key)
    return value


def all_or_none(values: Sequence[Any], key: str, path: Path) -> bool:
    """Whether every row has a value (is not None); TraceError when some have and some have none."""
    without = [number for number, value in enumerate(values, start=1) if value is None]
    if without and len(without) < len(values):
        has = next(number for number, value in enumerate(values, start=1) if value is not None)
        raise Spot(path, without[0]).error(
            f"the value is missing, but line {has} has one", "write one in every line or in none", key
        )
    return not without


def ints_or_none(values: Sequence[int | None], key: str, path: Path) -> NDArray[np.int64] | None:
    """The column of whole numbers that every row or none has; otherwise TraceError."""
    values_there = [value for value in values if value is not None]
    return int64(values_there) if all_or_none(values, key, path) else None


def names_or_none(values: Sequence[str | None]) -> Names | None:
    """The column of names, or None when no row has one."""
    return Names.of(values) if any(value is not None for value in values) else None


def int64(values: Sequence[int]) -> NDArray[np.int64]:
    """A column of whole numbers."""
    return np.array(values, dtype=np.int64)


_EXACT: Final = Context(prec=40, rounding=ROUND_HALF_EVEN)  # no caller's own context may round for us
_EXAMPLES: Final = {"s": "1.5"}


class JsonTimes:
    """The times under one key of all rows, in ``unit`` (one of ``traces.times.UNITS``)."""

    def __init__(self, key: str, unit: str) -> None:
        self.key = key
        self._unit = unit
        self._zoned: bool | None = None

    def ns(self, row: dict[str, Any], spot: Spot, key: str | None = None) -> int:
        """The row's time in ns, a date since 1970: exact, or the nearest (ties to even).

        key: another than the usual one. Raises TraceError for anything else that is no time.
        """
        value, key = row.get(key or self.key), key or self.key
        if self._unit == ISO:
            return self._date_ns(value, key, spot)
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal):
            problem = "the value is missing" if value is None else f"{shown(value)} is not a number"
            example = _EXAMPLES.get(self._unit, "1500")
            remedy = f"write the arrival in {self._unit}, such as {example}"
            raise spot.error(problem, remedy if value is None else f"{remedy}, {OTHER_UNIT}", key)
        digits = DIGITS[self._unit]
        if not 0 <= value <= Decimal(INT64_MAX).scaleb(-digits, _EXACT):
            problem = f"{shown(value)} {self._unit} is negative or too late"
            raise spot.error(problem, f"write the time since the trace's start, {OTHER_UNIT}", key)
        return int(value.quantize(Decimal((0, (1,), -digits)), context=_EXACT).scaleb(digits, _EXACT))

    def _date_ns(self, value: Any, key: str, spot: Spot) -> int:
        if not isinstance(value, str):
            problem = "the value is missing" if value is None else f"{shown(value)} is not a date"
            raise spot.error(problem, f'write {WORDS[ISO]} in quotes, such as "2023-11-16T18:15:46.68Z"', key)
        stamp_ns, zoned = Stamp().judge(value, lambda problem, remedy: spot.error(problem, remedy, key))
        if self._zoned is not None and zoned != self._zoned:
            has, had = ("no time zone", "has one") if self._zoned else ("a time zone", "has none")
            problem = f"the date has {has} and the first row's {had}"
            raise spot.error(problem, "write all with +00:00 or all without", key)
        self._zoned = zoned
        return stamp_ns
