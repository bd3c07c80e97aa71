"""Cells that are decimal times such as 5160.142570018768 seconds, exact to the nanosecond."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from traces.csv.bytes import Block, Bools, Ints, all_digits, whole_numbers
from traces.csv.column import NumberColumn
from traces.csv.line import Refuse, absent, shown
from traces.times import OTHER_UNIT

MAX_NS: Final = 9_000_000_000_000_000_000
"""The largest time, 285 years: a round number that 64 bits hold."""
_MOST_TAIL: Final = 16  # digits behind the rounding digit of the usual form
_DECIMAL: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,3}))?", re.ASCII)
_MOST_DIGITS: Final = 400  # a double written out in full has fewer


@dataclass(frozen=True, slots=True)
class Decimal:
    """A time of at least 0, handed on as int64 nanoseconds, rounded half up.

    digits: decimal places of a nanosecond in the file's unit: 9 of seconds, 6 of milliseconds. unit: its
    name. blank: what an empty cell means, if anything. time: whether ``trace.time_unit`` names the unit.
    """

    digits: int = 9
    unit: str = "seconds"
    blank: int | None = None
    time: bool = False

    def column(self) -> NumberColumn:
        """An empty column."""
        return NumberColumn(self.read)

    def read(self, block: Block, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
        """Nanoseconds of the fields between ``begin`` and ``end``, and which are in the usual form."""
        point = _points(block, begin, end)
        whole, ok = whole_numbers(block, begin, point)
        most = MAX_NS // 10**self.digits
        value = np.where(ok & (whole < most), whole, 0) * 10**self.digits
        ok &= whole < most
        dotted = np.flatnonzero(point < end)
        if len(dotted):
            part, part_ok = self._fraction(block, point[dotted] + 1, end[dotted])
            value[dotted] += part
            ok[dotted] &= part_ok
        if self.blank is not None:
            empty = begin == end
            value, ok = np.where(empty, self.blank, value), ok | empty
        return value, ok

    def _fraction(self, block: Block, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
        width = end - begin
        digits = np.minimum(width, self.digits)
        value, ok = whole_numbers(block, begin, begin + digits)
        value = np.where(ok, value, 0) * 10 ** (self.digits - digits)
        longer = np.flatnonzero(width > self.digits)
        if len(longer):
            tail = begin[longer] + self.digits
            rest = width[longer] - self.digits
            ok[longer] &= (rest <= _MOST_TAIL) & all_digits(block, tail, np.minimum(rest, _MOST_TAIL))
            value[longer] += block.text[tail] >= ord("5")
        return value, ok

    def judge(self, text: str, refuse: Refuse) -> int:
        """The exact value of a cell, or TraceError."""
        cell = text.strip(" \t")
        if not cell and self.blank is not None:
            return self.blank
        other = f", {OTHER_UNIT}" if self.time else ""
        remedy = f"write {self.unit} such as 19440110.25{other}"
        if absent(cell):
            raise refuse(f"the value is missing ({shown(cell)})", remedy)
        match = _DECIMAL.fullmatch(cell)
        if match is None:
            negative = re.fullmatch(r"-[0-9.]+", cell)
            raise refuse(f"{shown(cell)} is {'negative' if negative else 'not a number'}", remedy)
        if len(cell) > _MOST_DIGITS:
            raise refuse(f"{shown(cell)} has {len(cell)} characters", remedy)
        value = _rounded(match[1], match[2] or "", int(match[3] or 0) + self.digits)
        if value > MAX_NS:
            raise refuse(f"{shown(cell)} {self.unit} exceed 285 years", f"correct or delete the line{other}")
        return value


def _points(block: Block, begin: Ints, end: Ints) -> Ints:
    """Where each field's point stands, or its end; found field by field because most have none or few."""
    dots = block.at(".")
    if not len(dots):
        return end
    dot = np.take(np.append(dots, len(block.data)), np.searchsorted(dots, begin))
    points: Ints = np.minimum(dot, end)
    return points


def _rounded(whole: str, fraction: str, places: int) -> int:
    """whole.fraction times ten to the ``places``, rounded half up, in integers."""
    number, places = int(whole + fraction), places - len(fraction)
    if places >= 0:
        power: int = 10**places
        return number * power
    divisor: int = 10**-places
    return (2 * number + divisor) // (2 * divisor)
