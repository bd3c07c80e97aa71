"""What the table reader asks of a kind of column, and the column most kinds share: a number per row."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from traces.csv.bytes import Block, Bools, Ints
from traces.csv.line import Refuse

RefuseRow = Callable[[int, str, str], Exception]
"""(row, problem, remedy) -> the error that names the cell in that row."""


class Column(Protocol):
    """The values of one column while its file is read."""

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """Append one value per field; returns which fields are in the usual form."""
        ...

    def put(self, row: int, value: Any) -> None:
        """Set a value that a judge has read; ``row`` counts from the block appended last."""
        ...

    def joined(self, refuse: RefuseRow) -> Any:
        """The whole column, in file order; called once, at the end."""
        ...


class Kind(Protocol):
    """What a column's cells are."""

    def judge(self, text: str, refuse: Refuse) -> Any:
        """The exact value of a cell in any form, or TraceError."""
        ...

    def column(self) -> Column:
        """An empty column."""
        ...


class NumberColumn:
    """A column of numbers. read_block: (block, begin, end) -> values and which are in the usual form."""

    def __init__(
        self, read_block: Callable[[Block, Ints, Ints], tuple[Ints, Bools]], dtype: type = np.int64
    ) -> None:
        self._read_block = read_block
        self._dtype = dtype
        self._parts: list[NDArray[Any]] = []

    def read(self, block: Block, begin: Ints, end: Ints) -> Bools:
        """See Column."""
        values, ok = self._read_block(block, begin, end)
        self._parts.append(np.where(ok, values, 0).astype(self._dtype))
        return ok

    def put(self, row: int, value: int) -> None:
        """See Column."""
        self._parts[-1][row] = value

    def joined(self, refuse: RefuseRow) -> NDArray[Any]:
        """See Column."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts)
