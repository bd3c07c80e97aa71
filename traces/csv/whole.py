"""Cells that are whole numbers: tokens, counts, priorities, nanoseconds."""

import re
from dataclasses import KW_ONLY, dataclass

import numpy as np

from traces.csv.bytes import Block, Bools, Ints, whole_numbers
from traces.csv.column import NumberColumn
from traces.csv.line import Refuse, absent, shown
from traces.times import OTHER_UNIT
from traces.workload import MAX_TOKENS

_POINTED = re.compile(r"(?<=[0-9])\.0+\Z", re.ASCII)
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from ``least`` to ``most``.

    noun: what it counts. blank: what an empty cell means, if anything. example: one for the errors to show.
    time: whether ``trace.time_unit`` names the unit. pointed: whether 374.0 is 374, as programs write numbers
    of a column with gaps.
    """

    least: int = 0
    most: int = MAX_TOKENS
    _: KW_ONLY
    noun: str = "tokens"
    blank: int | None = None
    example: int = 374
    time: bool = False
    pointed: bool = False

    def column(self) -> NumberColumn:
        """An empty column; of 32 bits where they hold every value, because traces are long."""
        small = max(-self.least, self.most) <= _INT32_MAX
        return NumberColumn(self.read, np.int32 if small else np.int64)

    def read(self, block: Block, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
        """The numbers between ``begin`` and ``end``, and which are plain and within the bounds."""
        negative = (block.text[begin] == ord("-")) & (end > begin) if self.least < 0 else None
        value, ok = whole_numbers(block, begin if negative is None else begin + negative, end)
        if negative is not None:
            value = np.where(negative, -value, value)
        ok &= (value >= self.least) & (value <= self.most)
        if self.blank is not None:
            empty = begin == end
            value, ok = np.where(empty, self.blank, value), ok | empty
        return value, ok

    def judge(self, text: str, refuse: Refuse) -> int:
        """The exact value of a cell, or TraceError."""
        cell = text.strip(" \t")
        if not cell and self.blank is not None:
            return self.blank
        if self.pointed:
            cell = _POINTED.sub("", cell)
        remedy = f"write a whole number such as {self.example}" + (f", {OTHER_UNIT}" if self.time else "")
        if absent(cell):
            raise refuse(f"the value is missing ({shown(cell)})", remedy)
        if not re.fullmatch(r"-?[0-9]+" if self.least < 0 else r"[0-9]+", cell):
            raise refuse(f"{shown(cell)} {_problem(cell)}", remedy)
        sign, digits = ("-" if cell[0] == "-" else ""), cell.lstrip("-").lstrip("0") or "0"
        # Python reads at most 4,300 digits, and bounds have at most 19.
        value = int(sign + digits[:20])
        if value > self.most:
            raise refuse(f"{shown(cell)} {self.noun} are more than {self.most}", "correct or delete the line")
        if value < self.least:
            few = f"{cell[:40]} {self.noun} are fewer than {self.least}"
            raise refuse(few, f"write at least {self.least} or delete the line")
        return value


def _problem(cell: str) -> str:
    if re.fullmatch(r"-[0-9.]+", cell):
        return "is negative"
    return "has a fraction" if re.fullmatch(r"[0-9]*\.[0-9]*", cell) else "is not a whole number"
