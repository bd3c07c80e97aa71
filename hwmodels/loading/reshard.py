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
    """Which rank sends which share of the KV to which; shares sum to 1. Heads are on the ranks in order.

    Raises HardwareError if a size does not divide the heads.
    """
    shape.require_tp(source_tp)
    shape.require_tp(target_tp)
    per_source, per_target = shape.kv_heads // source_tp, shape.kv_heads // target_tp
    shares: list[Share] = []
    for source in range(source_tp):
        for target in range(target_tp):
            first = max(source * per_source, target * per_target)
            end = min((source + 1) * per_source, (target + 1) * per_target)
            if first < end:
                shares.append(Share(source, target, Fraction(end - first, shape.kv_heads)))
    return tuple(shares)
