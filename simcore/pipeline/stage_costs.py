"""The event loop's interface to step times of a staged model (hwmodels.step_times.stage_rows.StageRows)."""

from collections.abc import Sequence
from typing import Protocol

from serving.vocabulary.actions import Chunk

StagePiece = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(context limit, intercept of each stage, slope of each stage) of decode steps."""


class StageCosts(Protocol):
    """Fixed-point times of a step, stage by stage."""

    @property
    def stages(self) -> int:
        """Number of stages."""

    def decode(self, n: int) -> tuple[StagePiece, ...]:
        """Linear pieces of a decode step of ``n`` sequences."""

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> tuple[int, ...]:
        """A step with prompt chunks and ``n`` decodes of total ``context``."""

    def hops(self, tokens: int) -> tuple[int, ...]:
        """Transfer time of the activations of ``tokens`` tokens to each stage; 0 to the first."""

    @property
    def skewed(self) -> bool:
        """Whether unequal contexts cost more than equal ones."""

    @property
    def output_token(self) -> int:
        """What each generated token of the residents adds to a step, at the last stage; may be 0."""

    def shift(self, n: int, spread: int) -> int:
        """As in ``simcore.replica.step_times.StepTimes``: these are tokens."""
