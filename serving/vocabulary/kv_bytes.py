"""The size of KV: what grows with every token of a context, and what a sequence has whatever its context."""

from typing import Final

from serving.vocabulary.fact import fact


@fact
class KvBytes:
    """Bytes of one copy, on all ranks together. ``per_sequence``: of windows and states of linear layers.

    A whole window counts from the first token on.
    """

    per_token: int
    per_sequence: int = 0

    def of(self, positions: int, requests: int = 1) -> int:
        """Bytes of this many positions of so many requests together."""
        return positions * self.per_token + requests * self.per_sequence


NO_KV: Final = KvBytes(0)
