"""The linear rung: six coefficients per (GPU, model, tensor-parallel size), fitted or declared."""

from dataclasses import dataclass, fields

from hwmodels.errors import HardwareError
from hwmodels.step_time import Piece, StepLimits, require_overhead


@dataclass(frozen=True, slots=True)
class LinearCoefficients:
    """Seconds. Decode step: ``decode_s + decode_per_sequence_s * n + decode_per_context_token_s * T``.

    Prefill step: ``prefill_s + prefill_per_token_s * tokens`` plus, per chunk,
    ``prefill_per_square_token_s * ((cached + new)^2 - cached^2)``, twice the causal (query, key) pairs.
    """

    decode_s: float
    decode_per_sequence_s: float
    decode_per_context_token_s: float
    prefill_s: float
    prefill_per_token_s: float
    prefill_per_square_token_s: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value < float("inf"):
                raise HardwareError(f"linear coefficient {field.name}={value} must be 0 or positive seconds")
        if max(self.decode_s, self.decode_per_sequence_s) == 0.0:
            raise HardwareError("linear coefficients decode_s and decode_per_sequence_s must not both be 0")


@dataclass(frozen=True, slots=True)
class LinearStepModel:
    """``limits`` is the range answered, ``measured`` the part of it the fit has seen."""

    coefficients: LinearCoefficients
    overhead_s: float
    limits: StepLimits
    measured: StepLimits
    source: str
    error_band: str

    def __post_init__(self) -> None:
        require_overhead(self.overhead_s)

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """Mixed steps pay the larger intercept once: the weights are read once for both kinds of tokens."""
        c = self.coefficients
        decode_s = c.decode_per_sequence_s * decode_sequences
        if prefill_tokens == 0:
            return self.overhead_s + c.decode_s + decode_s
        prefill_s = c.prefill_per_token_s * prefill_tokens
        if decode_sequences == 0:
            # A short prompt cannot cost less than reading every weight once, which is what decode_s is.
            return self.overhead_s + max(c.prefill_s + prefill_s, c.decode_s)
        return self.overhead_s + max(c.prefill_s, c.decode_s) + prefill_s + decode_s

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """One straight piece up to the end of the range."""
        return (Piece(self.limits.max_context_tokens, 0.0, self.coefficients.decode_per_context_token_s),)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The square term, telescoping over the chunks of one prompt."""
        squares = new_tokens * (new_tokens + 2 * cached_tokens)
        return self.coefficients.prefill_per_square_token_s * squares
