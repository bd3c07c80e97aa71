"""What the event loop asks of step times: integers in fixed point, whatever model is behind them."""

from collections.abc import Sequence
from typing import Protocol

from serving.vocabulary.actions import Chunk
from serving.vocabulary.errors import UserError

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

    @property
    def output_token(self) -> int:
        """What every token that a decoding sequence has generated adds to a step; 0 with most engines."""

    def shift(self, n: int, spread: int) -> int:
        """Tokens that a decode step counts on top of the total context of ``n`` sequences.

        ``spread`` is n times the largest context, less the total: it stands still while the same sequences
        decode.
        """


class ResidentTimes(Protocol):
    """What of step times matters to which requests are looked at."""

    @property
    def skewed(self) -> bool:
        """Whether unequal contexts cost more than equal ones."""

    @property
    def output_token(self) -> int:
        """As ``StepTimes``."""


class ExpertTimes(Protocol):
    """What the ranks of a data-parallel group do together in a step (hwmodels.expert_rows.ExpertRows)."""

    def group_cost(self, tokens: Sequence[int]) -> int:
        """Fixed-point time of the experts, and of what is sent to them and back, where ranks have ``tokens``.

        A rank with a dummy step has one.
        """


def later_piece(pieces: Pieces, replica: int, decoding: int, context: int) -> tuple[int, int, int]:
    """The piece that answers for ``context``; UserError beyond the last one."""
    for piece in pieces:
        if context <= piece[0]:
            return piece
    raise UserError(
        f"replica {replica} decodes {decoding} sequences with {context} tokens of context, beyond "
        f"the {pieces[-1][0]} its step-time model answers for: write a smaller engine.kv_tokens"
    )
