"""Numbers that must lie in a range, refused with one sentence."""

from numbers import Real
from typing import Any

from traces.checks import short_number
from traces.errors import TraceError


def number_within(key: str, value: Any, least: float, most: float) -> float:
    """``value`` as a float from ``least`` to ``most``, or TraceError naming ``key``."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    if not good or not least <= value <= most:
        span = f"{short_number(least)} to {short_number(most)}"
        raise TraceError(f"{key}={value!r} is out of range: write a number from {span}")
    return float(value)
