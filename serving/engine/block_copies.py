"""Selects the copies of blocks that a request finds."""

from collections.abc import Sequence

from serving.engine.block_table import common_tokens
from serving.engine.free_queue import Extent, SharedPrefix

# Blocks [1] to [2] of an extent [0]; None: the step being composed computes them.
Piece = tuple[Extent | None, int, int]
# Of a request [0] with its prefix [1]: blocks [2] to [3].
Computed = tuple[int, SharedPrefix, int, int]


def add_pieces(
    pieces: list[Piece],
    copies: Sequence[tuple[Extent, int]],
    *,
    at: int,
    stop: int,
    request: int,
    prefix: SharedPrefix,
    block_tokens: int,
    computed: Sequence[Computed],
) -> int:
    """Add the available blocks of [at, stop) up to the first gap; returns where they end."""
    while at < stop:
        best: Extent | None = None
        if len(copies) == 1:
            only, until = copies[0]
            if only.start <= at < until:
                best = only
        else:
            best, until = best_copy(copies, at)
        if best is None:
            if not _is_computed(request, prefix, at, block_tokens, computed):
                break
            until = at + 1
        until = min(until, stop)
        pieces.append((best, at, until))
        at = until
    return at


def best_copy(copies: Sequence[tuple[Extent, int]], at: int) -> tuple[Extent | None, int]:
    """The oldest extent that has block ``at``, and where it ends or an older one begins.

    copies: (extent, end of what is found of it).
    """
    best: Extent | None = None
    until = 0
    for extent, end in copies:
        if extent.start <= at < end and (best is None or extent.born < best.born):
            best, until = extent, end
    if best is not None:
        for extent, _ in copies:
            if at < extent.start < until and extent.born < best.born:
                until = extent.start
    return best, until


def _is_computed(
    request: int, prefix: SharedPrefix, at: int, block_tokens: int, computed: Sequence[Computed]
) -> bool:
    """Whether the step being composed computes block ``at`` of a request's tokens."""
    for other, its_prefix, first, end in computed:
        if first <= at < end:
            common = common_tokens(request, prefix, other, its_prefix)
            if at < common // block_tokens:
                return True
    return False
