"""The units every package agrees on.

Event time is integer nanoseconds. Step time is integer *fixed point*: nanoseconds with
``FRACTION_BITS`` binary fraction bits, so that k steps summed in closed form and k steps
summed one by one are the same integer.
"""

from typing import Final

FRACTION_BITS: Final = 24
NS_PER_S: Final = 1_000_000_000


def fixed_from_seconds(seconds: float) -> int:
    """Seconds as fixed-point nanoseconds, rounded to the nearest representable value."""
    return round(seconds * NS_PER_S * (1 << FRACTION_BITS))


def seconds_from_fixed(fixed: int) -> float:
    """Fixed-point nanoseconds as float seconds."""
    return fixed / (NS_PER_S << FRACTION_BITS)
