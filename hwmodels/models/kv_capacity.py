"""How many KV blocks fit beside the weights of one replica."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import model_units

CANDIDATE_TP = (1, 2, 4, 8)
_NO_TP = "no model.tp of 1, 2, 4, 8 fits: write a smaller model, a larger GPU or a smaller reserve"


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """KV memory of one replica (all its ranks): whole blocks, their tokens, and how it was computed."""

    blocks: int
    tokens: int
    arithmetic: str


def kv_capacity(
    gpu: Gpu,
    llm: LlmShape,
    *,
    tp: int,
    memory_utilization: float,
    block_tokens: int,
    activation_reserve_bytes: int | None = None,
    layers: range | None = None,
    data_parallel: int = 1,
) -> KvCapacity:
    """Blocks of ``block_tokens`` tokens that one replica of ``llm`` on ``tp`` of ``gpu`` can hold.

    ``layers``: those that the replica has (None: all). It holds their weights, with the embedding if layer 0
    is among them and the head if the last one is, and a token's KV of these layers only. ``data_parallel``:
    number of engines that share the routed experts; each has its own blocks.

    ``memory_utilization`` is the share of each GPU the engine may use, ``activation_reserve_bytes`` what it
    keeps free of KV on each GPU (None: the catalogue's number, whose source is in ``gpu.source``). An
    engine's own reported capacity, if known, is better than this.
    """
    llm.require_tp(tp)
    reserve = gpu.activation_reserve_bytes if activation_reserve_bytes is None else activation_reserve_bytes
    _check_settings(memory_utilization, block_tokens, reserve)
    token_bytes = llm.kv_copies(tp) * llm.kv_bytes_per_token * len(layers or range(llm.layers)) // llm.layers
    units = model_units(llm, layers=layers, expert_parts=data_parallel)
    weight_bytes = sum([unit.size_bytes for unit in units])
    block_bytes = token_bytes * block_tokens
    per_gpu = int(gpu.memory_bytes * memory_utilization) - reserve
    blocks = (per_gpu * tp - weight_bytes) // block_bytes
    if blocks < 1:
        raise HardwareError(
            _too_large(
                gpu=gpu, llm=llm, tp=tp, per_gpu=per_gpu, weight_bytes=weight_bytes, block_bytes=block_bytes
            )
        )
    tokens = blocks * block_tokens
    arithmetic = (
        f"({gpu.memory_bytes} B x {memory_utilization:g} - {reserve} B reserve) x {tp} GPU"
        f" - {weight_bytes} B weights = {per_gpu * tp - weight_bytes} B; "
        f"// ({token_bytes} B per token x {block_tokens}) = {blocks} blocks = {tokens} tokens"
    )
    return KvCapacity(blocks, tokens, arithmetic)


def smallest_tp(
    gpu: Gpu,
    llm: LlmShape,
    memory_utilization: float,
    block_tokens: int,
    activation_reserve_bytes: int | None = None,
) -> int | None:
    """The least of ``CANDIDATE_TP`` at which weights and one KV block fit; None if none does."""
    reserve = gpu.activation_reserve_bytes if activation_reserve_bytes is None else activation_reserve_bytes
    _check_settings(memory_utilization, block_tokens, reserve)
    per_gpu = int(gpu.memory_bytes * memory_utilization) - reserve
    needed = llm.weight_bytes + llm.kv_bytes_per_token * block_tokens
    return _smallest_tp(llm, per_gpu, needed)


def _smallest_tp(llm: LlmShape, per_gpu: int, needed: int) -> int | None:
    fitting = (tp for tp in CANDIDATE_TP if llm.splits_into(tp) and per_gpu * tp >= needed)
    return next(fitting, None)


def _check_settings(memory_utilization: float, block_tokens: int, reserve: int) -> None:
    if not 0.0 < memory_utilization <= 1.0:
        raise HardwareError(
            f"memory_utilization={memory_utilization} is not a share; write a number in (0, 1]"
        )
    if block_tokens < 1:
        raise HardwareError(f"block_tokens={block_tokens} is not a block size; write 1 or more, usually 16")
    if reserve < 0:
        raise HardwareError(f"activation_reserve_bytes={reserve} is negative; write 0 or more bytes")


def _too_large(*, gpu: Gpu, llm: LlmShape, tp: int, per_gpu: int, weight_bytes: int, block_bytes: int) -> str:
    needed = weight_bytes + block_bytes
    fitting = _smallest_tp(llm, per_gpu, needed)
    advice = f"write model.tp={fitting}, the smallest that fits" if fitting else _NO_TP
    return (
        f"{llm.name} needs {needed} bytes (weights and one KV block) but tp={tp} on {gpu.name} leaves "
        f"{max(0, per_gpu * tp)} bytes after utilization and reserve; {advice}"
    )
