"""What the event loop asks of step times: integers in fixed point, whatever model is behind them."""

from collections.abc import Sequence
from typing import Protocol

from serving.actions import Chunk

Pieces = tuple[tuple[int, int, int], ...]


class StepTimes(Protocol):
    """Step times in fixed point (hwmodels.rows.StepRows)."""

    def decode(self, n: int) -> Pieces:
        """(context limit, intercept, slope) pieces of a decode step of ``n`` sequences."""

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A step with prompt chunks and ``n`` decodes of total ``context``."""

    @property
    def skewed(self) -> bool:
        """Whether unequal contexts cost more than equal ones."""

    def shift(self, n: int, spread: int) -> int:
        """Tokens that a decode step counts on top of the total context of ``n`` sequences.

        ``spread`` is n times the largest context, less the total: it stands still while the same sequences
        decode.
        """
