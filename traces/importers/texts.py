"""How many tokens a text has: counted, or estimated from its characters."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Final

from traces.checks import positive_number, short_number
from traces.importers.json_lines import Spot
from traces.workload import MAX_TOKENS

CHARS_PER_TOKEN: Final = 4.0
"""Characters of English text per token, the rule of thumb of help.openai.com (what are tokens)."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How long a text is: counted by ``count``, or estimated from its characters when that is None."""

    count: Callable[[str], int] | None
    chars_per_token: float

    def size(self, text: str, spot: Spot) -> int:
        """Tokens (at least 1) if they are counted, otherwise characters: sizes can be added."""
        if self.count is None:
            return len(text)
        tokens = self.count(text)
        if isinstance(tokens, bool) or not isinstance(tokens, Integral) or tokens < 1:
            raise spot.error(f"count_tokens returned {tokens!r}", "return whole numbers of at least 1")
        return int(tokens)

    def tokens(self, size: int, spot: Spot, key: str) -> int:
        """Tokens of a size, rounded up, at least 1; TraceError beyond ``MAX_TOKENS``."""
        tokens = float(size) if self.count is not None else size / self.chars_per_token
        if tokens > MAX_TOKENS:
            raise spot.error(f"the text has more than {MAX_TOKENS} tokens", "shorten or delete it", key)
        return max(1, math.ceil(tokens))

    def label(self) -> str:
        """What to say after the word lengths."""
        if self.count is None:
            return f"estimated at {short_number(self.chars_per_token)} characters per token"
        return f"counted by {getattr(self.count, '__qualname__', type(self.count).__qualname__)}"


def measure_of(count_tokens: Callable[[str], int] | None, chars_per_token: float) -> Measure:
    """The measure of a reader's two options; TraceError unless ``chars_per_token`` is above 0."""
    return Measure(count_tokens, positive_number("chars_per_token", chars_per_token))
