"""The bytes of many fields at once, taken eight at a time.

One eight-byte load and a dozen operations on whole columns read a number of up to eight digits, where a loop
over characters takes eight loads and forty operations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

PAD_BYTES = 64
"""Spaces around a block, so that loads near its ends, and timestamps cut short, stay inside the array."""
EIGHT = 8
MAX_DIGITS = 18
"""Digits that always fit into 64 bits; longer numbers are not in the usual form."""

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)  # 9 + 0x76 is 0x7f, so the top bit shows what is above 9
_TOP_BITS = np.uint64(0x8080808080808080)
# A step of the parallel sum: neighbours of so many bits are joined as left * base + right, the rest cut off.
_STEPS = (
    (np.uint64(8), np.uint64(10), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(16), np.uint64(100), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(32), np.uint64(10_000), np.uint64(0x00000000FFFFFFFF)),
)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a file. data: the padded bytes. text: the same as numbers. eights: eight bytes from each."""

    data: bytes
    text: NDArray[np.uint8]
    eights: Words

    @classmethod
    def of(cls, lines: bytes) -> "Block":
        """A block of whole lines; the first begins at ``PAD_BYTES``."""
        pad = b" " * PAD_BYTES
        data = pad + lines + pad
        text = np.frombuffer(data, dtype=np.uint8)
        shape, little = (len(data) - EIGHT + 1,), np.dtype("<u8")
        return cls(data, text, np.ndarray(shape, little, data, strides=(1,)))

    def at(self, char: str) -> Ints:
        """Where ``char`` stands, in order."""
        return np.flatnonzero(self.text == ord(char))


def head(block: Block, begin: Ints, width: Ints) -> Words:
    """The first ``width`` (1 to 8) bytes from ``begin`` as one number, the others 0."""
    shift = (EIGHT * (EIGHT - width)).astype(np.uint64)
    return (block.eights[begin] << shift) >> shift


def whole_numbers(block: Block, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
    """The decimal numbers from ``begin`` to ``end``, and which are 1 to ``MAX_DIGITS`` digits and no more."""
    width = end - begin
    ok = (width >= 1) & (width <= MAX_DIGITS)
    widest = int(width.max(initial=0))
    value, digits_ok = _eight_digits(block, end, np.clip(width, 1, EIGHT))
    ok &= digits_ok
    for above in range(EIGHT, min(widest, MAX_DIGITS), EIGHT):
        longer = np.flatnonzero(width > above)
        more, more_ok = _eight_digits(block, end[longer] - above, np.clip(width[longer] - above, 1, EIGHT))
        value[longer] += more * 10**above
        ok[longer] &= more_ok
    return value, ok


def all_digits(block: Block, begin: Ints, width: Ints) -> Bools:
    """Which of the runs of ``width`` (0 to 16) bytes are digits only."""
    _, ok = whole_numbers(block, begin, begin + width)
    digits: Bools = ok | (width == 0)
    return digits


def _eight_digits(block: Block, end: Ints, width: Ints) -> tuple[Ints, Bools]:
    """Numbers of ``width`` (1 to 8) digits that end before ``end``."""
    shift = (EIGHT * (EIGHT - width)).astype(np.uint64)
    number = block.eights[end - EIGHT]
    number ^= _ZEROS
    number >>= shift
    number <<= shift  # what stood before the first digit is now zeros
    ok = (((number + _ABOVE_NINE) | number) & _TOP_BITS) == 0
    for bits, base, mask in _STEPS:
        number = (number * base + (number >> bits)) & mask
    return number.view(np.int64), ok
