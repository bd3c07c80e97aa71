"""Columns of a CSV file whose cells are names: of models, sessions or functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.columns import ABSENT, Names
from traces.csv.bytes import EIGHT, Block, Bools, Ints, Words, head
from traces.csv.column import RefuseRow
from traces.csv.line import Refuse

MAX_WORD_BYTES: Final = 1024
"""The longest word allowed. Names of models and sessions have some tens of bytes; a longer cell means that a
quote or a newline is missing."""

# The multiplier of the hash, 2**64 / golden ratio. Another odd number would cause more collisions at worst,
# which cost time; words are always compared byte for byte.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ROWS: Final = 1 << 16  # rows renumbered at a time: an index array for all rows is twice as large as a column


@dataclass(frozen=True, slots=True)
class Word:
    """The kind of a column of words in UTF-8. blank: whether cells may be empty; such a row has no word."""

    blank: bool = False

    def column(self) -> "WordColumn":
        """A column without rows."""
        return WordColumn(self.blank)

    def judge(self, text: str, refuse: Refuse) -> bytes:
        """The bytes of a cell. Raises TraceError if it is empty, unless ``blank``, or too long."""
        word = text.encode()
        if not word and not self.blank:
            raise refuse("the cell is empty", "write a name, or delete the line")
        if len(word) > MAX_WORD_BYTES:
            raise refuse(
                f"the name has {len(word)} bytes", f"write at most {MAX_WORD_BYTES}, and close the quotes"
            )
        return word


class WordColumn:
    """A column of words while its file is read: each word is stored once, and each row has its code."""

    def __init__(self, blank: bool) -> None:
        self._blank = blank
        self._code: dict[bytes, int] = {}
        self._parts: list[NDArray[np.int32]] = []

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """Append one code for each row of the block; returns which rows are valid so far.

        Rows are grouped by a hash of their words, and the first row of a group gives its word. A row whose
        word has the same hash but other bytes counts as not valid: the table reader parses it with ``judge``.
        """
        width = end - begin
        ok = width <= MAX_WORD_BYTES
        width = np.where(ok, width, 0)
        if not self._blank:
            ok &= width > 0
        _, first, group = np.unique(_hash_words(block, begin, width), return_index=True, return_inverse=True)
        ok &= _equals_word_of(block, begin, width, first[group])
        texts = zip(begin[first].tolist(), (begin + width)[first].tolist())
        codes = np.array([self._code_of(block.data[a:b]) for a, b in texts], dtype=np.int32)
        self._parts.append(codes[group])
        return ok

    def put(self, row: int, value: bytes) -> None:
        """Set the word of a row of the block read last."""
        self._parts[-1][row] = self._code_of(value)

    def joined(self, refuse: RefuseRow) -> Names:
        """All rows, with the words in the order in which they first appear in the file. Called once."""
        parts, self._parts = self._parts, []
        codes = np.concatenate(parts)
        words = [
            word.decode("utf-8", "replace") for word in self._code
        ]  # a word that is no UTF-8 is in no row
        return compacted(codes, words)

    def _code_of(self, word: bytes) -> int:
        return self._code.setdefault(word, len(self._code)) if word else ABSENT


def compacted(codes: NDArray[np.int32], words: Sequence[str]) -> Names:
    """Names with one row per code. Words without a row are dropped; the others are in the order in which
    they first appear in ``codes``."""
    first = np.full(len(words) + 1, len(codes))  # ABSENT is -1: the last element is for rows without a word
    for start in range((len(codes) - 1) // _ROWS * _ROWS, -1, -_ROWS):
        part = codes[start : start + _ROWS][::-1]
        first[part] = np.arange(start + len(part) - 1, start - 1, -1)  # numpy keeps the last of equal indices
    used = np.flatnonzero(first[:-1] < len(codes))
    used = used[np.argsort(first[used])]
    renamed = np.full(len(words) + 1, ABSENT, dtype=np.int32)
    renamed[used] = np.arange(len(used))
    named = np.empty(len(codes), dtype=np.int32)
    for start in range(0, len(codes), _ROWS):
        named[start : start + _ROWS] = renamed[codes[start : start + _ROWS]]
    return Names(named, tuple(words[code] for code in used.tolist()))


def _hash_words(block: Block, begin: Ints, width: Ints) -> Words:
    """One hash for each word of ``width`` bytes from ``begin``."""
    value = width.astype(np.uint64)
    for at in range(0, int(width.max(initial=0)), EIGHT):
        rows = _rows_longer_than(width, at)
        part = head(block, begin[rows] + at, np.minimum(width[rows] - at, EIGHT))
        mixed = (value[rows] ^ part) * _MIX
        value[rows] = mixed ^ (mixed >> _HALF)
    return value


def _equals_word_of(block: Block, begin: Ints, width: Ints, other: Ints) -> Bools:
    """For each row, whether its word has the same bytes as the word of the row ``other``."""
    same: Bools = width == width[other]
    for at in range(0, int(width.max(initial=0)), EIGHT):
        rows = _rows_longer_than(width, at)
        width_here = np.minimum(width[rows] - at, EIGHT)
        one, two = begin[rows] + at, begin[other[rows]] + at
        two = np.where(same[rows], two, one)  # other lengths: the shorter word may end the block
        same[rows] &= head(block, one, width_here) == head(block, two, width_here)
    return same


def _rows_longer_than(width: Ints, at: int) -> Ints | slice:
    """The rows with words of more than ``at`` bytes. If all rows have them, a slice, which copies nothing."""
    longer = width > at
    return slice(None) if longer.all() else np.flatnonzero(longer)
