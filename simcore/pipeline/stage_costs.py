"""What the event loop asks of the step times of a model in stages (hwmodels.stage_rows.StageRows)."""

from collections.abc import Sequence
from typing import Protocol

from serving.vocabulary.actions import Chunk

StagePiece = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(context limit, intercept of each stage, slope of each stage) of decode steps."""


class StageCosts(Protocol):
    """Fixed-point times of a step, stage by stage."""

    @property
    def stages(self) -> int:
        """How many there are."""

    def decode(self, n: int) -> tuple[StagePiece, ...]:
        """Straight pieces of a decode step of ``n`` sequences."""

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> tuple[int, ...]:
        """A step with prompt chunks and ``n`` decodes of total ``context``."""

    def hops(self, tokens: int) -> tuple[int, ...]:
        """How long the activations of so many tokens are on their way to each stage; none to the first."""

    @property
    def skewed(self) -> bool:
        """Whether unequal contexts cost more than equal ones."""

    @property
    def output_token(self) -> int:
        """What each generated token of the residents adds to a step, at the last stage; 0: nothing."""

    def shift(self, n: int, spread: int) -> int:
        """As ``simcore.replica.step_times.StepTimes``: these are tokens."""
