"""Parses single values of measured files; an error is one sentence that names the place."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from servetwin.compare.measured import UNKNOWN
from servetwin.config.overrides import closest, echo
from serving.vocabulary.errors import UserError

NO_NUMBER: Final = -math.inf  # no number, NaN, infinity or more than MOST_TIME written as a time
MOST_TIME: Final = 1e15  # in the file's unit: 11 days in ns
MOST: Final = 1e20  # any other number: a moment in ns since 1970 has 19 digits
LARGEST: Final = 10**12  # for whole numbers: more than any count of requests or tokens
MOST_NAMED: Final = 8  # keys or values in one remark


@dataclass(slots=True)
class Overlooked:
    """What a reader of another tool's file passed over: unknown keys and wrong values."""

    keys: dict[str, None] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def remarks(self) -> Iterator[str]:
        """Yield a remark for each kind."""
        if self.keys:
            yield f"keys that are not known here are ignored: {named(list(self.keys))}"
        if self.wrong:
            yield f"unknown, since it is no count: {named(self.wrong)}"


def named(names: Collection[str], most: int = MOST_NAMED) -> str:
    """Return the first ``most`` of several names, and how many more there are."""
    first = ", ".join(list(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most:,} more"


class FilePlace:
    """A value's position in a file, such as ``runs.csv, row 3``.

    ``overlooked``: notes what is unknown or wrong in another tool's file. Without it that is refused.
    """

    __slots__ = ("_file", "overlooked", "where")

    def __init__(self, file: str, where: str = "", overlooked: Overlooked | None = None) -> None:
        self._file = file
        self.where = where
        self.overlooked = overlooked

    def at(self, where: str) -> "FilePlace":
        """Return a position in the same file, such as ``line 3``."""
        return FilePlace(self._file, where, self.overlooked)

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise the UserError that names the position."""
        text = f"{self._file}, {self.where}" if self.where else self._file
        raise UserError(f"{text}: {problem}: {remedy}")

    def number(self, value: Any, key: str) -> float:
        """Return a finite number; NaN if there is none (missing, null or an empty cell)."""
        if value is None or value == "":
            return UNKNOWN
        try:
            number = float(value)
        except (OverflowError, TypeError, ValueError):
            number = UNKNOWN
        if not abs(number) <= MOST or isinstance(value, bool):
            self.refuse(
                f"{key} is {_shown(value)}, not a number below {MOST:g}",
                f"write {key} as a finite number or leave it empty",
            )
        return number

    def time(self, value: Any, key: str) -> float:
        """Return a time as it is written: NaN if there is none, infinite if it is no number or too large.

        What cannot be true, such as a time below 0, is left out later and counted (``unknown_times``).
        """
        if value is None or value == "":
            return UNKNOWN
        try:
            if isinstance(value, bool) or not isinstance(value, str | float | int):
                raise ValueError
            number = float(value)
        except OverflowError:
            return NO_NUMBER
        except ValueError:
            return NO_NUMBER if self.overlooked is not None else self.number(value, key)
        return number if abs(number) <= MOST_TIME else NO_NUMBER

    def whole(self, value: Any, key: str) -> int | None:
        """Return a whole number of at least 0; None if there is none."""
        if self.overlooked is not None and not _is_count(value):
            self._note(f"{key} {_shown(value)}")
            return None
        number = self.number(value, key)
        if math.isnan(number):
            return None
        if not 0 <= number <= LARGEST or number != int(number):
            self.refuse(f"{key} is {_shown(value)}", f"write {key} as a whole number from 0 to {LARGEST:,}")
        return int(number)

    def mapping(self, value: Any, key: str) -> Mapping[str, Any]:
        """Return a JSON object."""
        if not isinstance(value, dict):
            self.refuse(f"{key} is no object", f"write {key} as the tool does, as {{...}}")
        return value

    def numbers(self, value: Any, key: str) -> list[float]:
        """Return a list of times as they are written."""
        if value is None:
            return []
        if not isinstance(value, list):
            if self.overlooked is not None:
                self._note(f"{key} {_shown(value)}")
                return []
            self.refuse(f"{key} is no list", f"write {key} as a list of numbers")
        return [self.time(item, key) for item in value]

    def only(self, keys: Collection[str], known: Collection[str], noun: str) -> None:
        """Refuse unknown names, or note them."""
        for name in keys:
            if name in known:
                continue
            if self.overlooked is not None:
                self.overlooked.keys.setdefault(echo(str(name)))
                continue
            longer = [key for key in known if key.startswith(f"{name}_")]
            near = longer[0] if longer else closest(str(name), known)
            meant = f"write {near} if that is meant, or delete it" if near else "delete it"
            self.refuse(
                f"{noun} '{echo(str(name))}' is unknown", f"{meant}; known are {', '.join(sorted(known))}"
            )

    def _note(self, text: str) -> None:
        assert self.overlooked is not None
        self.overlooked.wrong.append(f"{text} of {self.where}" if self.where else text)


def _is_count(value: Any) -> bool:
    """Return whether a value is missing or a whole number of at least 0, in whatever notation."""
    if value is None or value == "":
        return True
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return False
    return not isinstance(value, bool) and 0 <= number <= LARGEST and number == int(number)


def _shown(value: Any) -> str:
    return f"'{echo(str(value))}'"
