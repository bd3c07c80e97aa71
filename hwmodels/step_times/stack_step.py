"""The step model of a model without KV: one published time per request, independent of its length."""

from typing import Final

from hwmodels.models.layer_stack import LayerStack
from hwmodels.step_times.step_error import StepErrors, all_off_by
from hwmodels.step_times.step_time import Interplay, Piece, StepLimits

UNKNOWN: Final = "unknown: one published time per model, around which passes are drawn"
_ANY: Final = 1 << 30
_NOTHING_S: Final = 1e-9  # for a decode step, which no run has


class StackStep:
    """``StepModel`` of a pass over all layers."""

    __slots__ = ("_stack",)

    def __init__(self, stack: LayerStack) -> None:
        self._stack = stack

    @property
    def limits(self) -> StepLimits:
        """One request: its own tokens."""
        return StepLimits(_ANY, _ANY, self._stack.tokens, self._stack.tokens)

    @property
    def source(self) -> str:
        """The publisher."""
        return f"published: {self._stack.source}"

    @property
    def error_band(self) -> str:
        """Unknown."""
        return UNKNOWN

    @property
    def errors(self) -> StepErrors:
        """No other end is evaluated."""
        return all_off_by(0.0, "assumed", UNKNOWN)

    @property
    def labels(self) -> tuple[str, ...]:
        """Which numbers of the model are unpublished."""
        return self._stack.labels

    @property
    def interplay(self) -> Interplay | None:
        """None: there are no decodes to interact with."""
        return None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """One request through all layers."""
        return self._stack.execution_s if prefill_tokens else _NOTHING_S

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """Not used: no request decodes."""
        return (Piece(_ANY, 0.0, 0.0),)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """0: attention is part of ``dense_s``."""
        return 0.0
