"""Estimates of what a replica of a stage computes for a decoding request."""

from dataclasses import dataclass
from typing import Final

from serving.vocabulary.units import NS_PER_S

# The request assumed before one has ended, as long as estimates of speed assume contexts.
PROMPT_TOKENS: Final = 1024
OUTPUT_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class StageWork:
    """Seconds per prompt token, and per decoded token with as many other requests as fit."""

    prompt_token_s: float
    decode_token_s: float

    def of_ns(self, prompt_tokens: int, output_tokens: int) -> int:
        """Nanoseconds for a request of these lengths; its first token comes with its prompt."""
        seconds = self.prompt_token_s * prompt_tokens + self.decode_token_s * (output_tokens - 1)
        return round(seconds * NS_PER_S)

    @property
    def usual_s(self) -> float:
        """Seconds for the assumed request."""
        return self.of_ns(PROMPT_TOKENS, OUTPUT_TOKENS) / NS_PER_S
