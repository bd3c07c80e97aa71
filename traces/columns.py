"""Columns that are no plain numbers: names shared by many rows, and the prefix blocks of every prompt."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError

Rows = slice | NDArray[np.int64] | NDArray[np.bool_]
ABSENT = -1
"""The code of a row that has no name."""


def frozen(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """A read-only view, so that the caller's own array stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """One word per row, each word kept once. codes: int32, index into ``words`` or ``ABSENT``.

    words: distinct; some may be used by no row (after rows were taken away).
    Raises TraceError on a code that no word has, a word that comes twice, is empty or is not Unicode text.
    """

    codes: NDArray[np.int32]
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise TraceError("names need one-dimensional integer codes: write one per row")
        if len(codes) and not (codes.min() >= ABSENT and codes.max() < len(self.words)):
            raise TraceError(f"names have codes outside {ABSENT} to {len(self.words) - 1}: give each a word")
        if len(set(self.words)) != len(self.words):
            raise TraceError("names have a word twice: give every word one code")
        if not all(self.words):
            raise TraceError("names have an empty word: leave the name out where there is none")
        _check_unicode(self.words)
        object.__setattr__(self, "codes", frozen(codes.astype(np.int32, copy=False)))
        object.__setattr__(self, "words", tuple(self.words))

    @classmethod
    def of(cls, values: Iterable[str | None]) -> "Names":
        """Names of ``values`` row by row, words in order of first appearance; None is absent."""
        code: dict[str, int] = {}
        codes = [ABSENT if value is None else code.setdefault(value, len(code)) for value in values]
        return cls(np.array(codes, dtype=np.int32), tuple(code))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code == ABSENT else self.words[code]

    def taking(self, rows: Rows) -> "Names":
        """The names of the rows selected."""
        return Names(self.codes[rows], self.words)

    def tolist(self) -> list[str | None]:
        """One word (or None) per row."""
        words = (*self.words, None)  # ABSENT is -1 and so finds the last
        return [words[code] for code in self.codes.tolist()]

    def counts(self) -> dict[str, int]:
        """word -> rows that have it, most frequent first, ties by word; words without rows left out."""
        counts = np.bincount(self.codes[self.codes != ABSENT], minlength=len(self.words))
        pairs = [(word, int(n)) for word, n in zip(self.words, counts, strict=True) if n]
        return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def _check_unicode(words: Iterable[str]) -> None:
    """TraceError at a word with half a surrogate pair, which no file could hold."""
    for word in words:
        if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
            raise TraceError(f"the name {word[:40]!a} is not Unicode text: write whole characters")


def numbers(columns: Mapping[str, NDArray[Any] | Names]) -> dict[str, NDArray[Any]]:
    """The columns that hold numbers, without those of names."""
    return {name: column for name, column in columns.items() if not isinstance(column, Names)}


MOST_ID = 2**64 - 1
"""The largest id of a block in a file: some tools write hashes of 64 bits without a sign."""


def opaque_ids(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Ids of blocks, of which only equality counts: the same, or new ones for all if one is beyond int64."""
    if len(ids) and int(ids.max()) >= 2**63:
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    return ids.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PrefixBlocks:
    """Which prompts begin alike: block ids per row, equal leading ids mean an equal prefix.

    block_tokens: tokens of a full block (512 in the Mooncake traces); a fraction once tokens were scaled.
    offsets: int64, row r has ``ids[offsets[r]:offsets[r + 1]]``. ids: int64, at least 0. The last block of a
    row may be partly filled: no id speaks of tokens beyond the prompt. Raises TraceError when they do not
    fit.
    """

    block_tokens: float
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        offsets, ids = np.asarray(self.offsets, np.int64), np.asarray(self.ids, np.int64)
        if offsets.ndim != 1 or ids.ndim != 1 or len(offsets) == 0:
            raise TraceError("prefix blocks need one-dimensional offsets (one more than rows) and ids")
        if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
            raise TraceError("prefix block offsets must rise from 0 to the number of ids")
        if not self.block_tokens > 0 or (len(ids) and ids.min() < 0):
            raise TraceError("prefix blocks need block_tokens above 0 and ids of at least 0")
        object.__setattr__(self, "offsets", frozen(offsets))
        object.__setattr__(self, "ids", frozen(ids))

    @classmethod
    def of(cls, lists: Iterable[Iterable[int]], block_tokens: float) -> "PrefixBlocks":
        """Prefix blocks of one id list per row."""
        rows = [list(ids) for ids in lists]
        offsets = np.concatenate(([0], np.cumsum([len(ids) for ids in rows], dtype=np.int64)))
        flat = np.array([id for ids in rows for id in ids], dtype=np.int64)
        return cls(block_tokens, offsets.astype(np.int64), flat)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> tuple[int, ...]:
        return tuple(self.ids[self.offsets[row] : self.offsets[row + 1]].tolist())

    def taking(self, rows: Rows) -> "PrefixBlocks":
        """The blocks of the rows selected."""
        chosen = np.arange(len(self))[rows]
        start, size = self.offsets[chosen], np.diff(self.offsets)[chosen]
        offsets = np.concatenate(([0], np.cumsum(size)))
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], size) + np.repeat(start, size)
        return PrefixBlocks(self.block_tokens, offsets, self.ids[at])

    def shifted(self, by: NDArray[np.int64]) -> "PrefixBlocks":
        """Row r's ids plus ``by[r]``: rows with different shifts share nothing any more."""
        return PrefixBlocks(self.block_tokens, self.offsets, self.ids + np.repeat(by, np.diff(self.offsets)))

    def scaled(self, factor: float) -> "PrefixBlocks":
        """The blocks of prompts with ``factor`` times the tokens: equal prefixes stay equal."""
        tokens = self.block_tokens * factor
        return PrefixBlocks(int(tokens) if tokens == int(tokens) else tokens, self.offsets, self.ids)

    @property
    def whole_block_tokens(self) -> int:
        """``block_tokens`` for a file; TraceError when scaling has made it a fraction."""
        if self.block_tokens != int(self.block_tokens):
            raise TraceError(
                f"prefix blocks of {self.block_tokens:.12g} tokens cannot be written to a file: write another"
                " tokens_scale, or identities=false to leave them out"
            )
        return int(self.block_tokens)
