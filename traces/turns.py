"""Conversations whose prompts begin with what was said before."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.columns import Rows, frozen
from traces.errors import TraceError

CONVERSATIONS_NOT_WRITTEN: Final = "which prompt continues which is not written"
"""What a file format says that has no place for turns."""


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """Which prompts continue which: all rows of one ``stream`` are cut from one text, each from its start.

    A row's prompt, and its answer after it, reach as far into that text as they are long: a next turn's
    prompt is the prompt before it, its answer, and something new. ``common_tokens``: the first tokens of
    every prompt of all streams, such as a system prompt. stream: int64, at least 0. Raises TraceError.
    """

    stream: NDArray[np.int64]
    common_tokens: int = 0

    def __post_init__(self) -> None:
        stream = np.asarray(self.stream, np.int64)
        if stream.ndim != 1 or self.common_tokens < 0 or (len(stream) and stream.min() < 0):
            raise TraceError("turns need one stream per row and common_tokens, all at least 0")
        object.__setattr__(self, "stream", frozen(stream))

    def __len__(self) -> int:
        return len(self.stream)

    def taking(self, rows: Rows) -> "Turns":
        """The turns of the rows selected."""
        return replace(self, stream=self.stream[rows])

    def shifted(self, by: NDArray[np.int64]) -> "Turns":
        """Row r's stream plus ``by[r]``: rows with different shifts share the common tokens alone."""
        return replace(self, stream=self.stream + by)

    def scaled(self, factor: float) -> "Turns":
        """The turns of prompts with ``factor`` times the tokens."""
        return replace(self, common_tokens=int(self.common_tokens * factor))

    def tolist(self) -> list[int]:
        """The stream of every row."""
        positions: list[int] = self.stream.tolist()
        return positions
