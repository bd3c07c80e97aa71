"""Cells that are calendar timestamps such as 2023-11-16 18:15:46.6805900, exact to the nanosecond."""

import re
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from traces.csv.bytes import Block, Bools, Ints, whole_numbers
from traces.csv.column import NumberColumn, RefuseRow
from traces.csv.line import Refuse, absent, shown
from traces.workload import NS_PER_S

YEAR_MIN, YEAR_MAX = 1970, 2261
"""Whole years that nanoseconds since 1970 in 64 bits can hold."""

_EPOCH = datetime(1970, 1, 1)
_STAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z| ?UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_STAMP_CHARS = 19  # 2023-11-16 18:15:46
_UTC = b"+00:00"
_FRACTION_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Stamp:
    """A timestamp, handed on as int64 nanoseconds since 1970. All of a file have a zone, or none has."""

    def column(self) -> "StampColumn":
        """An empty column."""
        return StampColumn()

    def judge(self, text: str, refuse: Refuse) -> tuple[int, bool]:
        """(nanoseconds since 1970, whether the cell names a zone), or TraceError."""
        cell = text.strip(" \t")
        match = _STAMP.fullmatch(cell)
        if match is None:
            if absent(cell):
                remedy = "write the arrival time or delete the line"
                raise refuse(f"the value is missing ({shown(cell)})", remedy)
            raise _bad(cell, "is not a timestamp", refuse)
        *parts, fraction, zone = match.groups()
        try:
            year, month, day, hour, minute, second = map(int, parts)
            since = datetime(year, month, day, hour, minute, second) - _EPOCH
        except ValueError as error:
            raise _bad(cell, f"is not a date and time that exists ({error})", refuse) from error
        if not YEAR_MIN <= int(parts[0]) <= YEAR_MAX:
            raise _bad(cell, f"is outside the years {YEAR_MIN} to {YEAR_MAX}", refuse)
        seconds = since.days * 86_400 + since.seconds - _zone_s(cell, zone, refuse)
        return seconds * NS_PER_S + int((fraction or "").ljust(9, "0")), zone is not None


class StampColumn:
    """The timestamps of a file, and which of them name a zone."""

    def __init__(self) -> None:
        self._stamps = NumberColumn(self._read_block)
        self._zoned: list[Bools] = []

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """See Column."""
        return self._stamps.read(block, begin, end)

    def put(self, row: int, value: tuple[int, bool]) -> None:
        """See Column."""
        stamp_ns, self._zoned[-1][row] = value
        self._stamps.put(row, stamp_ns)

    def joined(self, refuse: RefuseRow) -> Ints:
        """See Column; TraceError at the first row that names a zone unlike the first row, or the reverse."""
        zoned = np.concatenate(self._zoned)
        other = zoned != zoned[0]
        if other.any():
            has, had = ("no time zone", "has one") if zoned[0] else ("a time zone", "has none")
            problem = f"the timestamp has {has} and the first row's {had}"
            raise refuse(int(np.argmax(other)), problem, "write all with +00:00 or all without")
        return self._stamps.joined(refuse)

    def _read_block(self, block: Block, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
        zoned = end - begin >= _STAMP_CHARS + len(_UTC)
        zone_at = np.where(zoned, end - len(_UTC), begin)
        for i, char in enumerate(_UTC):
            zoned &= block.text[zone_at + i] == char
        zulu = (end - begin > _STAMP_CHARS) & (block.text[end - 1] == ord("Z"))
        zoned, zone_at = zoned | zulu, np.where(zulu, end - 1, zone_at)
        self._zoned.append(zoned)
        seconds, ok = _seconds(block, begin)
        ok &= end - begin >= _STAMP_CHARS
        point = begin + _STAMP_CHARS
        digits = np.where(zoned, zone_at, end) - point - 1
        fraction, fraction_ok = _fractions_ns(block, point + 1, digits)
        fraction_ok &= (digits == -1) | ((digits > 0) & (block.text[point] == ord(".")))
        ok &= fraction_ok
        return np.where(ok, seconds, 0) * NS_PER_S + np.where(ok, fraction, 0), ok


def _fractions_ns(block: Block, begin: Ints, digits: Ints) -> tuple[Ints, Bools]:
    some = np.clip(digits, 0, _FRACTION_DIGITS)
    value, ok = whole_numbers(block, begin, begin + some)
    value = np.where(ok, value, 0) * 10 ** (_FRACTION_DIGITS - some)
    return value, (digits <= _FRACTION_DIGITS) & (ok | (digits <= 0))


def _seconds(block: Block, begin: Ints) -> tuple[Ints, Bools]:
    """Seconds since 1970 of ``YYYY-MM-DD HH:MM:SS`` at each ``begin``, and whether it is one that exists."""
    ok = np.ones(len(begin), dtype=np.bool_)
    for at, char in ((4, "-"), (7, "-"), (13, ":"), (16, ":")):
        ok &= block.text[begin + at] == ord(char)
    between = block.text[begin + 10]
    ok &= (between == ord(" ")) | (between == ord("T"))

    def number(at: int, width: int) -> Ints:
        nonlocal ok
        value, digits_ok = whole_numbers(block, begin + at, begin + at + width)
        ok &= digits_ok
        return value

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    ok &= (year >= YEAR_MIN) & (year <= YEAR_MAX) & (month >= 1) & (month <= 12)
    ok &= (hour <= 23) & (minute <= 59) & (second <= 59)
    month_index = np.where(ok, (year - 1970) * 12 + month - 1, 0)
    month_day, next_month_day = _first_day(month_index), _first_day(month_index + 1)
    ok &= (day >= 1) & (day <= next_month_day - month_day)
    return (month_day + day - 1) * 86_400 + hour * 3600 + minute * 60 + second, ok


def _first_day(month_index: Ints) -> Ints:
    """Days from 1970-01-01 to the first of a month, counted from January 1970."""
    return month_index.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _zone_s(cell: str, zone: str | None, refuse: Refuse) -> int:
    """Seconds that the zone is ahead of UTC."""
    if zone is None or zone in ("Z", "UTC", " UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise _bad(cell, "has a time zone that does not exist", refuse)
    return (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60)


def _bad(cell: str, problem: str, refuse: Refuse) -> Exception:
    return refuse(f"{shown(cell)} {problem}", "write it like 2023-11-16 18:15:46.6805900")
