"""The units of a trace's times, and the only rules by which one is taken that nobody has stated.

A reader has the unit of its format. Without ``trace.time_unit`` it takes another one where

1. the first time is a date such as 2026-01-01T00:00:00: dates (iso);
2. the first time, in s, ms, us or ns since 1970, lies in the years 2001 to 2103: that unit (``EPOCH_S``);
3. files with the same keys exist in s and in ms (``Clock.other``): s for times with fractions of which, as
   ms, more than ``MOST_AS_MS_PER_S`` would arrive per second, and ms for whole numbers of which fewer would.
   Not s where the times would last over a day as s and, as ms, up to ``MOST_PER_S`` would arrive per second:
   a load test of some minutes.

4. no format and no name says the unit (``Clock.open``): s for times with fractions, and for whole numbers
   the one unit in which ``PLAUSIBLE_PER_S`` requests arrive; where it cannot be told, the file is refused.

A label names the key if the unit is taken by rule 2, 3 or 4 instead of the format's own, or if it is doubtful
(``_doubts``). Times since 1970 and dates are counted from the first arrival.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from traces.checks import short_number
from traces.errors import TraceError
from traces.workload import NS_PER_S, TIMES

Ints = NDArray[np.int64]
Found = TypeVar("Found")

KEY: Final = "trace.time_unit"
ISO: Final = "iso"
DIGITS: Final = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Unit of a time -> how many decimal digits a nanosecond is below it."""
UNITS: Final = (*DIGITS, ISO)
WORDS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", ISO: "dates"}
OTHER_UNIT: Final = f"or name another unit with {KEY}={', '.join(UNITS[:-1])} or {ISO}"
"""The end of what to do about a time that is none in the unit it was read in."""
EPOCH_S: Final = (1_000_000_000, 4_200_000_000)
"""Seconds since 1970 from September 2001 to 2103. A trace that counts from its own start begins earlier."""
MOST_AS_MS_PER_S: Final = 10.0
"""Between arrivals per second that are plausible as milliseconds, and those that are, as seconds, 1000 times
fewer. The recorded traces in this project's reach have 2.6 to 5.5 per second."""
MOST_PER_S: Final = 100.0
LONGEST_AS_S: Final = 86_400.0
"""Seconds of a recording; a load test of minutes at tens of requests per second, read as s, lasts longer."""
PLAUSIBLE_PER_S: Final = (0.01, MOST_PER_S)
"""Arrivals per second of a log of one service, wide enough for what the project has recorded (0.05 to 50)."""
LONGEST_S: Final = 10 * 365.25 * 86_400
_DATE: Final = re.compile(r"\s*\d{4}-\d\d-\d\d[ T]\d\d:", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of a format. unit: its own. other: what files with the same keys have as well, or None.

    stated: whether the column's name or the dates themselves say the unit. open: nobody says it, so that the
    values tell it (rules 1, 2 and 4) or the file is refused; ``unit`` is then s.
    """

    unit: str
    other: str | None = None
    stated: bool = False
    open: bool = False


OPEN: Final = Clock("s", open=True)


@dataclass(frozen=True, slots=True)
class ParsedTimes:
    """The times of a file. arrival_ns: from the run's start. labels: what their unit is, and who says so."""

    arrival_ns: Ints
    labels: tuple[str, ...]


def checked_unit(given: str | None) -> str | None:
    """``trace.time_unit`` if it is one or None; otherwise TraceError."""
    if given is not None and given not in UNITS:
        raise TraceError(f"{KEY}={given} is unknown: write one of {', '.join(UNITS)}")
    return given


def read_in_unit(
    clock: Clock,
    given: str | None,
    first: Any,
    read: Callable[[str], tuple[Found, Ints]],
    *,
    from_first: bool = False,
    place: str = "the file",
) -> tuple[Found, ParsedTimes]:
    """What ``read`` finds in the unit that is ``given`` or by the rules of this module, and its times.

    first: the file's first time as it is written (text or number; None: unknown). read: the file in a unit:
    (anything, times in ns as written); it is called again if the times show another unit.
    from_first: whether the format's times always count from the first one. place: the file and column, for
    the sentence that refuses times whose unit cannot be told.
    """
    unit_used = checked_unit(given) or unit_of_first(first, clock)
    unit = unit_used or clock.unit
    read_times, times_ns = read(unit)
    why = ""
    if given is None and unit_used in DIGITS and unit_used != clock.unit:
        why = f"the first time, in {unit_used} since 1970, is of the years 2001 to 2103"
    elif unit_used is None and clock.open:
        unit, why = _told_by_rate(times_ns, place)
        if unit != clock.unit:
            read_times, times_ns = read(unit)
    elif unit_used is None and clock.other is not None and (why := _shows_other(times_ns, unit)):
        unit = clock.other
        read_times, times_ns = read(unit)
    dates = unit == ISO or int(times_ns.min()) >= EPOCH_S[0] * NS_PER_S
    start_ns = times_ns.min() if dates or from_first else 0
    doubts = [] if given is not None else _doubts(clock, unit, unit_used is not None, times_ns)
    counted = dates and not from_first
    if clock.open and unit != ISO and not why and given is None:
        why = f"the first time, in {unit} since 1970, is of the years 2001 to 2103"
    if clock.stated and given is None and unit == clock.unit and not (doubts or counted):
        return read_times, ParsedTimes(times_ns - start_ns, ())
    label = f"{TIMES}as dates" if unit == ISO else f"{TIMES}in {unit}"
    label += ", counted from the first" if counted else ""
    return read_times, ParsedTimes(times_ns - start_ns, (label + _remark(clock, unit, why, doubts),))


def unit_of_first(first: Any, clock: Clock) -> str | None:
    """The unit by rules 1 and 2; None where neither applies."""
    if isinstance(first, str) and _DATE.match(first):
        return ISO
    if isinstance(first, str) and _NUMBER.fullmatch(first.strip()):
        first = Decimal(first.strip())
    if type(first) not in (int, Decimal) or clock.unit in (ISO, "ns"):
        return None
    for unit, digits in DIGITS.items():
        scale = 10 ** (DIGITS["s"] - digits)
        if EPOCH_S[0] * scale <= first < EPOCH_S[1] * scale:
            return unit
    return None


def _shows_other(times_ns: Ints, unit: str) -> str:
    """Rule 3: why the times are in the other of s and ms; empty where they are not."""
    rate_per_s, fractions = _rate_per_s(times_ns), _has_fractions(times_ns, unit)
    if rate_per_s is None or fractions != (unit == "ms"):
        return ""
    as_ms_per_s = rate_per_s if unit == "ms" else rate_per_s * 1000
    if (as_ms_per_s > MOST_AS_MS_PER_S) != (unit == "ms"):
        return ""
    if unit == "ms" and as_ms_per_s <= MOST_PER_S and _span_s(times_ns) * 1000 > LONGEST_AS_S:
        return ""
    evidence = "some have fractions" if fractions else "all are whole numbers"
    rate = f"{rate_per_s:,.0f}" if rate_per_s >= 1000 else f"{rate_per_s:.3g}"
    return f"{evidence}, and as {unit} {rate} requests would arrive per second"


def _told_by_rate(times_ns: Ints, place: str) -> tuple[str, str]:
    """Rule 4: (unit, why) of times that were read as s; TraceError where the unit cannot be told."""
    rate_per_s, low, most = _rate_per_s(times_ns), *PLAUSIBLE_PER_S
    if rate_per_s is None:
        return "s", "all are the same"
    if _has_fractions(times_ns, "s"):
        if rate_per_s >= low:
            return "s", "some have fractions"
        units = ["s", "ms"]
    else:
        rates = {unit: rate_per_s * 10 ** (DIGITS["s"] - digits) for unit, digits in DIGITS.items()}
        units = [unit for unit, rate in rates.items() if low <= rate <= most] or ["s"] * (rate_per_s > most)
        if len(units) == 1:
            return units[0], f"as that, {rates[units[0]]:.3g} requests arrive per second"
    shown = " or ".join(units) or "s, ms, us or ns"
    raise TraceError(
        f"{place}: the times may be in {shown}"
        f" (as s, {rate_per_s:.3g} requests would arrive per second): write {KEY}="
        f"{(units or ['s'])[0]}, or the unit that is right"
    )


def _doubts(clock: Clock, unit: str, told: bool, times_ns: Ints) -> list[str]:
    """Why a unit that nobody has stated may be the wrong one. told: whether the first time tells it."""
    rate_per_s, found = _rate_per_s(times_ns), []
    if not clock.stated and not clock.open and not told:
        if unit == "ms" and _has_fractions(times_ns, unit):
            found.append("some have fractions")
        if rate_per_s is not None and rate_per_s > MOST_PER_S:
            found.append(f"more than {short_number(MOST_PER_S)} requests arrive per second")
        if unit == "s" and _shows_other(times_ns, unit):
            few = short_number(MOST_AS_MS_PER_S / 1000)
            found.append(f"all are whole numbers and fewer than {few} requests arrive per second")
    # The finest unit never makes times too long.
    if unit != "ns" and int(times_ns.max()) - int(times_ns.min()) > LONGEST_S * NS_PER_S:
        found.append("they span more than 10 years")
    return found


def _remark(clock: Clock, unit: str, why: str, doubts: list[str]) -> str:
    """What to say after the unit: why it is not the format's own, and why it may be wrong."""
    if not why and not doubts:
        return ""
    if clock.open and why:
        return f" ({why}{''.join(f', {doubt}' for doubt in doubts)}): write {KEY}= if they are not"
    text = f", not {clock.unit}: {why}" if why else ""
    text += f", which is doubtful: {', '.join(doubts)}" if doubts else ""
    return f"{text}: write {KEY}={unit} if that is right, or the unit that is"


def _rate_per_s(times_ns: Ints) -> float | None:
    span_s = _span_s(times_ns)
    return (len(times_ns) - 1) / span_s if span_s > 0 else None


def _span_s(times_ns: Ints) -> float:
    return (int(times_ns.max()) - int(times_ns.min())) / NS_PER_S


def _has_fractions(times_ns: Ints, unit: str) -> bool:
    return bool((times_ns % 10 ** DIGITS[unit]).any())
