"""The protocol of all step-time models: how long one engine step takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hwmodels.step_times.step_error import StepErrors


@dataclass(frozen=True, slots=True)
class Piece:
    """A linear piece of decode attention time, valid up to ``context_limit`` total context tokens."""

    context_limit: int
    intercept_s: float
    slope_s_per_token: float


def pieces_s(pieces: Sequence[Piece], context_tokens: int) -> float | None:
    """Seconds at ``context_tokens`` in total, from the first piece that covers them; None beyond the last."""
    for piece in pieces:
        if context_tokens <= piece.context_limit:
            return piece.intercept_s + piece.slope_s_per_token * context_tokens
    return None


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The range of a model; everything outside is refused.

    ``max_context_tokens`` is the sum over the decoding sequences, ``max_prefill_tokens`` the new prompt
    tokens of one step, ``max_prompt_tokens`` the last position of one prompt at which a chunk may end (None:
    ``max_context_tokens``). ``shared``: sequences may hold the same tokens, so that ``max_context_tokens`` is
    what one of them may have, and a bound on all different tokens together.
    """

    max_decode_sequences: int
    max_context_tokens: int
    max_prefill_tokens: int
    max_prompt_tokens: int | None = None
    shared: bool = False

    def total_context(self, decode_sequences: int) -> int:
        """The most tokens of context that so many sequences may have in all."""
        return self.max_context_tokens * (decode_sequences if self.shared else 1)

    @property
    def prompt_tokens(self) -> int:
        """The longest prompt a chunk may belong to, in tokens."""
        return self.max_context_tokens if self.max_prompt_tokens is None else self.max_prompt_tokens


class Interplay(Protocol):
    """The mutual effects of sequences of one step inside the attention kernel."""

    @property
    def skewed(self) -> bool:
        """Whether alpha is above 0 anywhere."""
        ...

    def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
        """Share alpha in [0, 1]: unequal contexts cost as if each were mean + alpha * (largest - mean)."""
        ...

    def mixed_decode_attention_s(
        self, decode_sequences: int, context_tokens: float, new_tokens: int, cached_tokens: int
    ) -> float:
        """Attention that decoding sequences add to a step with ``new_tokens`` of prompt chunks; seconds.

        ``context_tokens`` is their total context, ``cached_tokens`` those before the longest chunk.
        """
        ...


class StepModel(Protocol):
    """Seconds of the operations of one forward pass of a whole model on one replica.

    A step = ``dense_s`` (all that depends on token and sequence counts) + attention: the decode piece of its
    decoding sequences + ``prefill_attention_s`` of each prompt chunk, unless ``interplay`` knows the cost of
    both in one step. hwmodels.step_times.engine_overhead adds the engine's time.
    """

    @property
    def limits(self) -> StepLimits: ...

    @property
    def source(self) -> str: ...

    @property
    def error_band(self) -> str: ...

    @property
    def errors(self) -> StepErrors:
        """Errors of steps of each phase, as factors; ``error_band`` states them in words."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Notes for a run's header: parts of a step that are rough or of another engine."""
        ...

    @property
    def interplay(self) -> Interplay | None: ...

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """Linear layers, norms and head of a step with this many tokens; seconds."""
        ...

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """Attention time over total context T (each sequence's tokens, including the one being fed).

        Pieces in order of ``context_limit``; the first with T <= context_limit holds, the last limit is the
        end of the valid range.
        """
        ...

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Attention of one prompt chunk of ``new_tokens`` after ``cached_tokens``; seconds."""
        ...
