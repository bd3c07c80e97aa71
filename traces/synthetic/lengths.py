"""Token lengths drawn from what is published of them: quantiles and a mean, or a Zipf distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.errors import TraceError
from traces.workload import MAX_ROWS, MAX_TOKENS

Knot = tuple[float, float]
"""(probability, tokens)."""


def lengths_from_quantiles(
    generator: np.random.Generator, count: int, knots: Sequence[Knot], mean: float | None = None
) -> NDArray[np.int64]:
    """``count`` lengths in tokens (int64, at least 1) whose quantiles and mean are the declared ones.

    knots: (probability, tokens) from probability 0 (least) to 1 (most), probabilities rising, tokens not
    falling and between 1 and 10 million. Between two knots the inverse distribution function is a power curve
    ``low + (high - low) * t**shape``; one ``shape`` serves all segments and is solved from ``mean`` in closed
    form, so that any mean that some distribution through the knots can have is met. Without ``mean`` it is 1
    (straight lines). Each length takes one uniform draw, so fewer lengths are a prefix of more.
    Raises TraceError on knots out of order or a mean they cannot have.
    """
    size = whole_number("count", count, 1, MAX_ROWS)
    quantiles = _checked(knots)
    shape = 1.0 if mean is None else _shape_for_mean(*quantiles, mean)
    return _lengths_at(generator.random(size), *quantiles, shape)


@dataclass(frozen=True, slots=True)
class LengthTable:
    """What is known of one side's lengths. knots: as of ``lengths_from_quantiles``. mean: tokens.

    rows: requests the numbers were taken from, hence the size of a sample that has them. source: for people.
    """

    knots: tuple[Knot, ...]
    mean: float
    rows: int
    source: str

    def lengths_at(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The lengths at these points of the distribution function; TraceError on a bad table."""
        quantiles = _checked(self.knots)
        return _lengths_at(uniform, *quantiles, _shape_for_mean(*quantiles, self.mean))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfLengths:
    """Lengths of a Zipf distribution over ranks: rank r of 1 to ``ranks`` has a weight of r**-alpha.

    A rank is scaled to tokens so that the mean is ``mean``, rounded up; what is then above ``most_tokens`` is
    cut to it, which takes a little from the mean. rows and source: as in ``LengthTable``.
    """

    mean: float
    alpha: float
    ranks: int
    most_tokens: int
    rows: int
    source: str

    def probabilities(self) -> NDArray[np.float64]:
        """Of each rank, from 1 on; TraceError on a bad table."""
        if not (self.mean > 0 and self.alpha > 0 and self.ranks >= 1 and self.most_tokens >= 1):
            raise TraceError(f"{self} cannot be drawn: write numbers above 0")
        weights = np.arange(1, self.ranks + 1, dtype=np.float64) ** -self.alpha
        return np.asarray(weights / weights.sum())

    def tokens_of(self, ranks: NDArray[np.int64], mean_rank: float) -> NDArray[np.int64]:
        """Tokens of these ranks where ``mean_rank`` is to have ``mean`` tokens."""
        scaled = np.ceil(ranks * (self.mean / mean_rank))
        tokens: NDArray[np.int64] = np.minimum(scaled, self.most_tokens).astype(np.int64)
        return tokens

    def lengths_at(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The lengths at these points of the distribution function; TraceError on a bad table."""
        probabilities = self.probabilities()
        ranks = np.searchsorted(np.cumsum(probabilities), uniform, side="right") + 1
        mean_rank = float(probabilities @ np.arange(1, self.ranks + 1))
        return self.tokens_of(np.minimum(ranks, self.ranks), mean_rank)


Lengths = LengthTable | ZipfLengths
"""What lengths are drawn from."""


def draw_lengths(table: Lengths, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """``count`` lengths in tokens of ``table``; every ``table.rows`` of them have its quantiles and mean.

    The rows of a sample take one draw from each of ``table.rows`` equal slices of the distribution, in random
    order, so that a sample of the published size hits the published numbers for every seed (independent draws
    miss a mean of 128 with a deviation of 500 tokens by 4 %). A stretch much shorter than a sample varies
    like independent draws. Fewer lengths are a prefix of more. Raises TraceError on a bad table or count.
    """
    size = whole_number("count", count, 1, MAX_ROWS)
    rows = whole_number("rows of the length table", table.rows, 1, MAX_ROWS)
    samples = [table.lengths_at(_sliced(generator, rows)) for _ in range(-(-size // rows))]
    return np.concatenate(samples)[:size]


def _sliced(generator: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """One uniform draw per slice of 1 / rows, in random order, below 1."""
    slices = generator.permutation(rows)
    return np.minimum((slices + generator.random(rows)) / rows, np.nextafter(1.0, 0.0))


def _lengths_at(
    uniform: NDArray[np.float64], probability: NDArray[np.float64], tokens: NDArray[np.float64], shape: float
) -> NDArray[np.int64]:
    """The inverse distribution function, rounded to whole tokens."""
    segment = np.searchsorted(probability, uniform, side="right") - 1
    width, span = np.diff(probability), np.diff(tokens)
    t = (uniform - probability[segment]) / width[segment]
    return np.rint(tokens[segment] + span[segment] * t**shape).astype(np.int64)


def _checked(knots: Sequence[Knot]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        table = np.array(knots, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TraceError("quantile knots must be (probability, tokens) pairs of numbers") from error
    if table.ndim != 2 or table.shape[1] != 2 or len(table) < 2:
        raise TraceError("quantile knots must be two or more (probability, tokens) pairs, from 0 to 1")
    probability, tokens = table[:, 0].copy(), table[:, 1].copy()
    if probability[0] != 0 or probability[-1] != 1 or not (np.diff(probability) > 0).all():
        raise TraceError(
            f"quantile knots have probabilities {probability.tolist()}: write them rising from 0 to 1"
        )
    if not (np.isfinite(tokens).all() and tokens[0] >= 1 and tokens[-1] <= MAX_TOKENS):
        raise TraceError(f"quantile knots have tokens {tokens.tolist()}: write values from 1 to {MAX_TOKENS}")
    if (np.diff(tokens) < 0).any():
        raise TraceError(f"quantile knots have tokens {tokens.tolist()}: write them in rising order")
    return probability, tokens


def _shape_for_mean(probability: NDArray[np.float64], tokens: NDArray[np.float64], mean: float) -> float:
    """The shape that gives ``mean``: a segment's own mean is low + (high - low) / (1 + shape)."""
    width = np.diff(probability)
    low = math.fsum((width * tokens[:-1]).tolist())
    high = math.fsum((width * tokens[1:]).tolist())
    if low == high and math.isclose(mean, low):
        return 1.0
    if not low < mean < high:
        raise TraceError(
            f"mean={mean!r} is not possible with these quantile knots: write one above {low:g} and below"
            f" {high:g}, or change the knots"
        )
    return (high - low) / (mean - low) - 1.0
