"""Token lengths drawn from a published table: quantiles and a mean, nothing more."""

import math
from collections.abc import Sequence

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
    probability, tokens = _checked(knots)
    shape = 1.0 if mean is None else _shape_for_mean(probability, tokens, mean)
    uniform = generator.random(size)
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
        raise TraceError(f"quantile knots have tokens {tokens.tolist()}: write them so that none falls")
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
            f"mean={mean!r} cannot be had with these quantile knots: write one above {low:g} and below"
            f" {high:g}, or change the knots"
        )
    return (high - low) / (mean - low) - 1.0
