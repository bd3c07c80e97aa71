"""Integer step costs for tests: the interface of ``rows.StepRows``, with no model behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Above every total context a test can reach: the limit of the last piece of a row.
UNBOUNDED_CONTEXT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ToyRows:
    """Step costs in fixed-point ns (24 fraction bits); every parameter is such a cost, save ``knot_context``.

    A decode step of n sequences whose contexts sum to T costs ``intercept + per_sequence * n + slope * T``,
    for T up to ``knot_context`` (None: everywhere); above it ``knot_intercept`` and ``knot_slope`` replace
    intercept and slope. A step with chunks costs ``mixed_intercept``, ``per_token`` for each chunk token,
    ``per_pair`` for each (query, key) pair of the chunks, and the decode step of its n sequences if n > 0.
    ``skew_percent`` of the spread of contexts (n times the largest, less their sum) count as context, twice
    for odd n and twice again in steps with chunks. ``output_token``: what the machine
    adds for every token that a decoding sequence has generated.
    """

    intercept: int
    per_sequence: int
    slope: int
    mixed_intercept: int
    per_token: int
    per_pair: int = 0
    knot_context: int | None = None
    knot_intercept: int = 1
    knot_slope: int = 0
    skew_percent: int = 0
    output_token: int = 0

    def __post_init__(self) -> None:
        if min(self.intercept, self.mixed_intercept, self.knot_intercept) < 1:
            raise ValueError("intercepts must be at least 1, so that every step costs something")
        if min(self.per_sequence, self.slope, self.per_token, self.per_pair, self.knot_slope) < 0:
            raise ValueError("slopes must not be negative")

    def decode(self, n: int) -> tuple[tuple[int, int, int], ...]:
        """Pieces (limit, intercept, slope) of a decode step of ``n``: the first with T <= limit holds."""
        fixed = self.per_sequence * n
        if self.knot_context is None:
            return ((UNBOUNDED_CONTEXT, self.intercept + fixed, self.slope),)
        return (
            (self.knot_context, self.intercept + fixed, self.slope),
            (UNBOUNDED_CONTEXT, self.knot_intercept + fixed, self.knot_slope),
        )

    @property
    def skewed(self) -> bool:
        """Whether unequal contexts cost more."""
        return self.skew_percent > 0

    def shift(self, n: int, spread: int) -> int:
        """Tokens counted on top of a total context of ``n`` with this spread; odd and even n differ."""
        return self.skew_percent * (1 + n % 2) * spread // 100

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0) -> int:
        """Cost of a step with ``chunks`` (request, start, tokens) and ``n`` decodes of total ``context``."""
        cost = self.mixed_intercept
        context += self.shift(n, 2 * spread)
        for _, start, tokens in chunks:
            cost += self.per_token * tokens
            # The token at position p attends to p + 1 positions, its own included.
            cost += self.per_pair * sum(p + 1 for p in range(start, start + tokens))
        if n > 0:
            for limit, intercept, slope in self.decode(n):
                if context <= limit:
                    return cost + intercept + slope * context
        return cost
