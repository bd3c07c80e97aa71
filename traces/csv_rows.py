"""Lines of an Azure trace in their usual form, read a block at a time with integer arithmetic on the bytes.

No general CSV reader is used: they shift columns on extra fields, turn empty cells into NaN, and pass whole
numbers through floats. A line counts as usual only if every byte of it is accounted for; ``ok`` is False for
the others and says nothing about whether they are wrong.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.csv_line import YEAR_MAX, YEAR_MIN
from traces.workload import MAX_TOKENS, NS_PER_S

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_STAMP_CHARS = 19  # 2023-11-16 18:15:46
_UTC = b"+00:00"
_FRACTION_DIGITS = 9
_TOKEN_DIGITS = len(str(MAX_TOKENS))
_PAD = bytes(64)  # reading a fixed number of bytes from any line's start stays inside the array


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry per line; values hold only where ``ok``. start, end: its bytes without the line ending."""

    start: Ints
    end: Ints
    stamp_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    zoned: Bools
    ok: Bools


def read_rows(block: bytes, order: tuple[int, int, int]) -> Rows:
    """Rows of ``block`` (whole lines, each ending in a newline) with fields in the given order."""
    text = np.frombuffer(block + _PAD, dtype=np.uint8)
    newline = np.flatnonzero(text == ord("\n"))
    start = np.concatenate(([0], newline[:-1] + 1))
    end = newline - ((newline > start) & (text[newline - 1] == ord("\r")))
    comma = np.flatnonzero(text == ord(","))
    first = np.searchsorted(comma, start)
    ok = np.searchsorted(comma, end) - first == 2
    padded = np.concatenate((comma, [0, 0]))
    one, two = np.where(ok, padded[first], start), np.where(ok, padded[first + 1], start)
    begins, ends = (start, one + 1, two + 1), (one, two, end)
    stamp_ns, zoned, stamp_ok = _stamps(text, begins[order[0]], ends[order[0]])
    prompt, prompt_ok = _tokens(text, begins[order[1]], ends[order[1]])
    output, output_ok = _tokens(text, begins[order[2]], ends[order[2]])
    ok &= stamp_ok & prompt_ok & output_ok & (prompt > 0)
    return Rows(start, end, stamp_ns, prompt, output, zoned, ok)


def _tokens(text: NDArray[np.uint8], begin: Ints, end: Ints) -> tuple[Ints, Bools]:
    width = end - begin
    ok = (width >= 1) & (width <= _TOKEN_DIGITS)
    value = np.zeros(len(begin), dtype=np.int64)
    for i in range(_TOKEN_DIGITS):
        inside = i < width
        digit = text[begin + i] - ord("0")  # wraps, so that every other character is above 9
        ok &= (digit <= 9) | ~inside
        value = np.where(inside, value * 10 + digit, value)
    return value, ok & (value <= MAX_TOKENS)


def _stamps(text: NDArray[np.uint8], begin: Ints, end: Ints) -> tuple[Ints, Bools, Bools]:
    long_enough = end - begin >= _STAMP_CHARS
    zoned = end - begin >= _STAMP_CHARS + len(_UTC)
    zone_at = np.where(zoned, end - len(_UTC), begin)
    for i, char in enumerate(_UTC):
        zoned &= text[zone_at + i] == char
    seconds, ok = _seconds(text, begin)
    point = begin + _STAMP_CHARS
    digits = np.where(zoned, zone_at, end) - point - 1
    fraction, fraction_ok = _fractions_ns(text, point + 1, digits)
    fraction_ok &= (digits == -1) | ((digits > 0) & (text[point] == ord(".")))
    ok &= long_enough & fraction_ok
    return np.where(ok, seconds, 0) * NS_PER_S + fraction, zoned, ok


def _fractions_ns(text: NDArray[np.uint8], begin: Ints, digits: Ints) -> tuple[Ints, Bools]:
    ok = digits <= _FRACTION_DIGITS
    value = np.zeros(len(begin), dtype=np.int64)
    for i in range(_FRACTION_DIGITS):
        inside = i < digits
        digit = text[begin + i] - ord("0")
        ok &= (digit <= 9) | ~inside
        value = value * 10 + np.where(inside, digit, 0)
    return value, ok


def _seconds(text: NDArray[np.uint8], begin: Ints) -> tuple[Ints, Bools]:
    """Seconds since 1970 of ``YYYY-MM-DD HH:MM:SS`` at each ``begin``, and whether it is one that exists."""
    ok = np.ones(len(begin), dtype=np.bool_)
    for at, char in ((4, "-"), (7, "-"), (10, " "), (13, ":"), (16, ":")):
        ok &= text[begin + at] == ord(char)

    def number(at: int, width: int) -> Ints:
        nonlocal ok
        value = np.zeros(len(begin), dtype=np.int64)
        for i in range(at, at + width):
            digit = text[begin + i] - ord("0")
            ok &= digit <= 9
            value = value * 10 + digit
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
