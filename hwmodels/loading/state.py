"""Bytes of moved state: KV by block and layer, activations; and which rank sends what if tp differs."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape

BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Share:
    """``share`` of the whole KV is on ``source_rank`` and belongs on ``target_rank``."""

    source_rank: int
    target_rank: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class KvMove:
    """Bytes of KV from a rank of one instance to a rank of another."""

    source_rank: int
    target_rank: int
    size_bytes: int


def kv_bytes(
    shape: LlmShape,
    tokens: int,
    *,
    layers: int | None = None,
    tp: int = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> int:
    """Bytes on each of ``tp`` ranks of the blocks that hold ``tokens`` tokens, in ``layers`` of the layers.

    Whole blocks move, so tokens are rounded up to them (``block_tokens=1``: exact). layers None: all of them.
    Raises HardwareError.
    """
    shape.require_tp(tp)
    count = shape.layers if layers is None else layers
    if not 0 <= count <= shape.layers:
        raise HardwareError(f"{shape.name} has no KV of {count} layers: write 0 to {shape.layers}")
    if tokens < 0 or block_tokens < 1:
        raise HardwareError(
            f"KV cannot have {tokens} tokens in blocks of {block_tokens}: write at least 0 tokens and "
            "1 token per block"
        )
    stored = -(-tokens // block_tokens) * block_tokens
    return 2 * count * (shape.kv_heads // tp) * shape.head_dim * shape.bytes_per_parameter * stored


def activation_bytes(shape: LlmShape, tokens: int) -> int:
    """Bytes between two layers: tokens x hidden x width. Every tensor-parallel rank holds all of them.

    Source: BlitzScale, section 5.2, sends this much for each request that another instance continues.
    """
    if tokens < 0:
        raise HardwareError(f"the activations are of {tokens} tokens: write at least 0")
    return tokens * shape.hidden * shape.bytes_per_parameter


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


def kv_moves(
    shape: LlmShape,
    tokens: int,
    source_tp: int,
    target_tp: int,
    *,
    layers: int | None = None,
    block_tokens: int = BLOCK_TOKENS,
) -> tuple[KvMove, ...]:
    """The KV of ``tokens`` tokens from ``source_tp`` ranks to ``target_tp``, to the byte. As ``kv_bytes``."""
    whole = kv_bytes(shape, tokens, layers=layers, block_tokens=block_tokens)
    return tuple(
        KvMove(one.source_rank, one.target_rank, int(whole * one.share))
        for one in reshard(shape, source_tp, target_tp)
    )
