"""Cells that are lists of ids separated by single spaces: the prefix blocks of a prompt."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.columns import MOST_ID, PrefixBlocks, opaque_ids
from traces.csv.bytes import Block, Bools, Ints, whole_numbers
from traces.csv.column import RefuseRow
from traces.csv.line import Refuse, shown

Unsigned = NDArray[np.uint64]
_MOST_DIGITS = len(str(MOST_ID))


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids from 0 with single spaces between; an empty cell has none. block_tokens: tokens of a full block."""

    block_tokens: int

    def column(self) -> "IdsColumn":
        """An empty column."""
        return IdsColumn(self.block_tokens)

    def judge(self, text: str, refuse: Refuse) -> Unsigned:
        """The ids of a cell, or TraceError."""
        remedy = "write whole numbers with single spaces between, such as 0 1 2"
        if not re.fullmatch(r"(?:[0-9]+(?: [0-9]+)*)?", text):
            raise refuse(f"{shown(text)} is not a list of ids", remedy)
        longest = max((id for id in text.split(" ")), key=len)
        digits = [id.lstrip("0") or "0" for id in text.split(" ")] if text else []
        if any(len(id) > _MOST_DIGITS or int(id) > MOST_ID for id in digits):
            raise refuse(f"{shown(longest)} is more than {MOST_ID}", "write smaller ids")
        return np.array([int(id) for id in digits], dtype=np.uint64)


class IdsColumn:
    """How many ids each row has, and the ids of all rows in one array."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._counts: list[Ints] = []
        self._ids: list[Unsigned] = []
        self._judged: dict[int, Unsigned] = {}  # rows of the block read last

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """See Column."""
        self._splice()
        space = block.at(" ")
        before = np.searchsorted(space, begin)
        count = np.searchsorted(space, end) - before + (end > begin)
        row = np.repeat(np.arange(len(begin)), count)
        number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        stop = np.where(number + 1 < count[row], np.take(space, before[row] + number, mode="clip"), end[row])
        start = np.where(number == 0, begin[row], np.concatenate(([0], stop[:-1] + 1))[: len(row)])
        ids, id_ok = whole_numbers(block, start, stop)
        self._counts.append(count)
        self._ids.append(np.where(id_ok, ids, 0).astype(np.uint64))
        ok = np.ones(len(begin), dtype=np.bool_)
        ok[row[~id_ok]] = False
        return ok

    def put(self, row: int, value: Unsigned) -> None:
        """See Column."""
        self._judged[row] = value

    def joined(self, refuse: RefuseRow) -> PrefixBlocks:
        """See Column."""
        self._splice()
        counts = np.concatenate(self._counts)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return PrefixBlocks(self._block_tokens, offsets, opaque_ids(np.concatenate(self._ids)))

    def _splice(self) -> None:
        """Put the judged rows' ids in the place of what the block reader took for them."""
        if not self._judged:
            return
        counts = self._counts[-1]
        rows = np.split(self._ids[-1], np.cumsum(counts)[:-1])
        for row, ids in self._judged.items():
            rows[row], counts[row] = ids, len(ids)
        self._ids[-1] = np.concatenate(rows)
        self._judged = {}
