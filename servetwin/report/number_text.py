"""Formats numbers for display, and reads parts of a summary that may be missing."""

import math
from collections.abc import Mapping
from typing import Any, Final

NOTHING: Final = "–"  # noqa: RUF001 (a dash is what a reader expects where there is no data)

Number = float | int | None


def section(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of the summary; empty if the run has none."""
    part = summary.get(name)
    return part if isinstance(part, Mapping) else {}


def is_known(value: Any) -> bool:
    """Return whether the value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def number(value: Number, digits: int = 3) -> str:
    """Return about ``digits`` significant digits, thousands separated, no exponent for ordinary sizes."""
    if not is_known(value):
        return NOTHING
    assert value is not None
    size = abs(value)
    if isinstance(value, int):
        return f"{value:,}"
    if size >= 10 ** (digits - 1) or value == 0:
        return f"{value:,.0f}"
    if size < 10**-digits:
        return f"{value:.{digits - 1}g}"
    decimals = digits - 1 - math.floor(math.log10(size))
    return f"{value:,.{decimals}f}"


def whole(value: Number) -> Number:
    """Return 8.0 as 8, so that a constant count appears as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def count(value: Number) -> str:
    """Return a whole number with thousands separated."""
    return f"{value:,.0f}" if is_known(value) else NOTHING


def counted(number: int, noun: str) -> str:
    """Return ``1 GPU``, ``8 GPUs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(value_ms: Number) -> str:
    """Return milliseconds in a readable unit."""
    if not is_known(value_ms):
        return NOTHING
    assert value_ms is not None
    if value_ms < 1000:
        return f"{number(value_ms)} ms"
    seconds = value_ms / 1000
    return f"{number(seconds)} s" if seconds < 7200 else f"{number(seconds / 3600)} h"


def share(value: Number) -> str:
    """Return a fraction as per cent; 100 % and 0 % only if exact."""
    if not is_known(value):
        return NOTHING
    assert value is not None
    percent = 100 * value
    shown = f"{percent:.2f}"
    if (shown == "100.00" and percent < 100) or (shown == "0.00" and percent > 0):
        return "> 99.99 %" if percent > 50 else "< 0.01 %"
    return f"{shown.rstrip('0').rstrip('.')} %"
