"""Attention of a roofline: bytes read and operations done, by what each layer attends to."""

from dataclasses import dataclass

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.attention import FULL, LINEAR, SLIDING
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """Seconds of all layers' attention on one replica, all its ranks working.

    read_s_per_token: of a sequence's whole context, in a decode step. read_s_per_sequence: what a decode step
    reads of a sequence whatever its context (windows, states, chosen tokens). square_s: per new * (new + 2
    cached) of a prompt chunk. new_token_s: per new token whatever is before it.
    """

    read_s_per_token: float
    read_s_per_sequence: float
    square_s: float
    new_token_s: float


def attention_rates(gpu: Gpu, llm: LlmShape, tp: int, *, compute: float, memory: float) -> AttentionRates:
    """The rates of ``llm`` on ``tp`` of ``gpu`` at shares ``compute`` and ``memory`` of their peaks.

    A layer that attends to a window or to chosen tokens is taken to read as many, and to multiply each new
    token with as many, even in a shorter context: too slow there, by what is small beside the weights.
    """
    bytes_per_s = gpu.memory_bandwidth_bytes_per_s * tp * memory
    flops_per_s = gpu.flops_per_s * tp * compute
    per_token, per_sequence = _read_bytes(llm, tp)
    squares, each_new = _flops(gpu, llm)
    return AttentionRates(
        read_s_per_token=max(per_token / bytes_per_s, _latent_flops_per_token(llm) / flops_per_s),
        read_s_per_sequence=per_sequence / bytes_per_s,
        square_s=squares / flops_per_s,
        new_token_s=each_new / flops_per_s,
    )


def _read_bytes(llm: LlmShape, tp: int) -> tuple[int, int]:
    """Bytes that ``tp`` ranks read of a sequence in a decode step: per token of context, and beside it."""
    token_bytes = llm.kv_copies(tp) * llm.kv_bytes_per_token
    index = None if llm.latent is None else llm.latent.index
    if index is None:
        return token_bytes, llm.kv_sequence_bytes_on(tp, range(llm.layers))
    keys = llm.kv_copies(tp) * llm.layers * index.cached_bytes
    return keys, (token_bytes - keys) * index.chosen


def _flops(gpu: Gpu, llm: LlmShape) -> tuple[float, float]:
    """Operations of prompt attention: per half square of tokens, and per new token.

    Scores and weighted sum take 2 operations each per pair and channel; pairs are half the square term.
    """
    latent = llm.latent
    channels = llm.heads * (2 * llm.head_dim if latent is None else llm.head_dim + latent.value)
    full, windowed = llm.layers_of(FULL), llm.layers_of(SLIDING)
    each_new = 2.0 * windowed * channels * llm.window_tokens
    if llm.linear is not None:
        each_new += (
            4.0 * llm.layers_of(LINEAR) * llm.linear.value_heads * (llm.linear.key_dim * llm.linear.value_dim)
        )
    if latent is None or latent.index is None:
        return float(full * channels), each_new
    index = latent.index
    faster = gpu.flops_in(FORMATS["fp8"].computes) / gpu.flops_per_s
    return full * index.heads * index.head_dim / faster, each_new + 2.0 * full * channels * index.chosen


def _latent_flops_per_token(llm: LlmShape) -> float:
    """Operations on one token of context in a decode step over a latent, which all query heads share.

    They multiply the latent itself: scores over ``kv_rank`` + ``rope``, sums over ``kv_rank`` (DeepSeek-V2,
    section 2.1.2). With an indexer only chosen tokens are multiplied, whatever the context.
    """
    latent = llm.latent
    if latent is None or latent.index is not None:
        return 0.0
    return 2.0 * llm.layers * llm.heads * (2 * latent.kv_rank + latent.rope)
