"""Cells that say when: numbers of some unit, or dates."""

from typing import Final

from traces.csv.column import Kind
from traces.csv.decimal import Decimal
from traces.csv.stamp import Stamp
from traces.csv.whole import Whole
from traces.times import DIGITS, ISO, WORDS
from traces.workload import INT64_MAX

_NS: Final = Whole(most=INT64_MAX, noun=WORDS["ns"], example=46926808, time=True)


def moment(unit: str) -> Kind:
    """The kind of a column of times in ``unit`` (one of ``traces.times.UNITS``), read as int64 ns."""
    if unit == ISO:
        return Stamp()
    return _NS if unit == "ns" else Decimal(DIGITS[unit], WORDS[unit], time=True)


def span(unit: str, blank: int | None = None) -> Decimal:
    """The same for how long something took: seconds beside dates. blank: what an empty cell means."""
    own = "s" if unit == ISO else unit
    return Decimal(DIGITS[own], WORDS[own], blank)
