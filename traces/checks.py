"""Checks of the numbers a caller hands to the trace functions, each refused with one sentence."""

import math
from numbers import Integral, Real
from typing import Any

from traces.errors import TraceError


def positive_number(key: str, value: Any) -> float:
    """``value`` as a float above zero, or TraceError naming ``key``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TraceError(f"{key}={value!r} is not a number: write a number above 0, such as {key}=0.5")
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise TraceError(f"{key}={value!r} must be finite and above 0: write for example {key}=0.5")
    return number


def whole_number(key: str, value: Any, least: int, most: int) -> int:
    """``value`` as an int from ``least`` to ``most``, or TraceError naming ``key``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TraceError(f"{key}={value!r} is not a whole number: write one from {least} to {most}")
    number = int(value)
    if not least <= number <= most:
        raise TraceError(f"{key}={number} is out of range: write a whole number from {least} to {most}")
    return number


def number_within(key: str, value: Any, least: float, most: float) -> float:
    """``value`` as a float from ``least`` to ``most``, or TraceError naming ``key``."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    if not good or not least <= value <= most:
        span = f"{short_number(least)} to {short_number(most)}"
        raise TraceError(f"{key}={value!r} is out of range: write a number from {span}")
    return float(value)


def short_number(value: float) -> str:
    """A factor as a label shows it: ``0.4``, ``3``."""
    return format(value, ".12g")
