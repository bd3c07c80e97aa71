"""The units that every package uses.

Event time is integer nanoseconds. Step time is integer *fixed point*: nanoseconds with ``FRACTION_BITS``
binary fraction bits, so that k steps summed in closed form and k steps summed one by one are the same
integer.
"""

from typing import Final

FRACTION_BITS: Final = 24
NS_PER_S: Final = 1_000_000_000
