"""Cells that are words, few or many different ones: models, sessions, functions."""

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
"""Longest word; models and sessions have some tens of bytes, so more is a missing quote or newline."""

# 2**64 / golden ratio. Any odd number with well mixed bits does: a poor one costs time, never a wrong word.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ROWS: Final = 1 << 16  # at a time, because an index array takes twice a column's memory


@dataclass(frozen=True, slots=True)
class Word:
    """A word, taken byte for byte as UTF-8. blank: whether a cell may be empty, which means no word."""

    blank: bool = False

    def column(self) -> "WordColumn":
        """An empty column."""
        return WordColumn(self.blank)

    def judge(self, text: str, refuse: Refuse) -> bytes:
        """The cell's bytes (none where it is empty), or TraceError."""
        word = text.encode()
        if not word and not self.blank:
            raise refuse("the cell is empty", "write a name, or delete the line")
        if len(word) > MAX_WORD_BYTES:
            raise refuse(
                f"the name has {len(word)} bytes", f"write at most {MAX_WORD_BYTES}, and close the quotes"
            )
        return word


class WordColumn:
    """One code per row and every word once."""

    def __init__(self, blank: bool) -> None:
        self._blank = blank
        self._code: dict[bytes, int] = {}
        self._parts: list[NDArray[np.int32]] = []

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """See Column. Rows meet by a hash; a row unlike the first of its hash is left to the judge."""
        width = end - begin
        ok = width <= MAX_WORD_BYTES
        width = np.where(ok, width, 0)
        if not self._blank:
            ok &= width > 0
        _, first, group = np.unique(_hashes(block, begin, width), return_index=True, return_inverse=True)
        ok &= _same(block, begin, width, first[group])
        texts = zip(begin[first].tolist(), (begin + width)[first].tolist())
        codes = np.array([self._code_of(block.data[a:b]) for a, b in texts], dtype=np.int32)
        self._parts.append(codes[group])
        return ok

    def put(self, row: int, value: bytes) -> None:
        """See Column."""
        self._parts[-1][row] = self._code_of(value)

    def joined(self, refuse: RefuseRow) -> Names:
        """See Column; words in order of first appearance, whatever the blocks were."""
        parts, self._parts = self._parts, []
        codes = np.concatenate(parts)
        words = [word.decode("utf-8", "replace") for word in self._code]  # damaged ones are in no row
        return compacted(codes, words)

    def _code_of(self, word: bytes) -> int:
        return self._code.setdefault(word, len(self._code)) if word else ABSENT


def compacted(codes: NDArray[np.int32], words: Sequence[str]) -> Names:
    """Names of ``codes`` with the words that some row has, in order of first appearance."""
    first = np.full(len(words) + 1, len(codes))  # ABSENT is -1 and so finds the last
    for start in range((len(codes) - 1) // _ROWS * _ROWS, -1, -_ROWS):
        part = codes[start : start + _ROWS][::-1]
        first[part] = np.arange(start + len(part) - 1, start - 1, -1)  # of equal codes the last one stays
    used = np.flatnonzero(first[:-1] < len(codes))
    used = used[np.argsort(first[used])]
    renamed = np.full(len(words) + 1, ABSENT, dtype=np.int32)
    renamed[used] = np.arange(len(used))
    named = np.empty(len(codes), dtype=np.int32)
    for start in range(0, len(codes), _ROWS):
        named[start : start + _ROWS] = renamed[codes[start : start + _ROWS]]
    return Names(named, tuple(words[code] for code in used.tolist()))


def _hashes(block: Block, begin: Ints, width: Ints) -> Words:
    value = width.astype(np.uint64)
    for at in range(0, int(width.max(initial=0)), EIGHT):
        rows = _longer(width, at)
        part = head(block, begin[rows] + at, np.minimum(width[rows] - at, EIGHT))
        mixed = (value[rows] ^ part) * _MIX
        value[rows] = mixed ^ (mixed >> _HALF)
    return value


def _same(block: Block, begin: Ints, width: Ints, other: Ints) -> Bools:
    """Which words are byte for byte that of the row ``other``."""
    same: Bools = width == width[other]
    for at in range(0, int(width.max(initial=0)), EIGHT):
        rows = _longer(width, at)
        width_here = np.minimum(width[rows] - at, EIGHT)
        one, two = begin[rows] + at, begin[other[rows]] + at
        two = np.where(same[rows], two, one)  # a shorter word may end the block
        same[rows] &= head(block, one, width_here) == head(block, two, width_here)
    return same


def _longer(width: Ints, at: int) -> Ints | slice:
    """The rows with more than ``at`` bytes; a slice, which copies nothing, when it is all."""
    longer = width > at
    return slice(None) if longer.all() else np.flatnonzero(longer)
