"""Which rank of an instance sends which share of the KV to which rank of another, if tp differs."""

from dataclasses import dataclass
from fractions import Fraction

from hwmodels.models.llm_shape import LlmShape


@dataclass(frozen=True, slots=True)
class Share:
    """``share`` of the whole KV is on ``source_rank`` and belongs on ``target_rank``."""

    source_rank: int
    target_rank: int
    share: Fraction


def reshard(shape: LlmShape, source_tp: int, target_tp: int) -> tuple[Share, ...]:
    """Which rank sends which share of the KV to which. Heads are on the ranks in order.

    Shares sum to the copies that the targets hold (``LlmShape.kv_copies``), each taken from the ranks that
    hold it in turn. Raises HardwareError if a size does not divide the heads.
    """
    shape.require_tp(source_tp)
    shape.require_tp(target_tp)
    heads = 1 if shape.latent is not None else shape.kv_heads
    shares: list[Share] = []
    for target in range(target_tp):
        wanted = _heads_of(target, target_tp, heads)
        for first_source in range(0, source_tp, max(1, source_tp // heads)):
            held = _heads_of(first_source, source_tp, heads)
            both = range(max(held.start, wanted.start), min(held.stop, wanted.stop))
            if both:
                source = first_source + target % max(1, source_tp // heads)
                shares.append(Share(source, target, Fraction(len(both), heads)))
    return tuple(sorted(shares, key=lambda share: (share.source_rank, share.target_rank)))


def _heads_of(rank: int, tp: int, heads: int) -> range:
    """The KV heads of a rank; of fewer heads than ranks, the one that it shares with its neighbours."""
    if tp >= heads:
        return range(rank * heads // tp, rank * heads // tp + 1)
    each = heads // tp
    return range(rank * each, (rank + 1) * each)
