"""How many KV blocks fit beside the weights of one replica."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import model_units
from hwmodels.models.vllm_memory import EngineLimits, Reserve, vllm_reserve

# The sequences whose number ``arithmetic`` tells.
TOLD_TOKENS = 1024
CANDIDATE_TP = (1, 2, 4, 8)
_NO_TP = "no model.tp of 1, 2, 4, 8 fits: write a smaller model, a larger GPU or a smaller reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """KV memory of one replica (all its ranks): whole blocks, their tokens, and how it was computed.

    ``fewest``, ``most``: blocks at the ends of what is known of the engine's reserve (None: exactly these).
    ``sequence_blocks``: what each sequence takes of them besides its tokens (``sequence_blocks_of``).
    """

    blocks: int
    tokens: int
    arithmetic: str
    fewest: int | None = None
    most: int | None = None
    sequence_blocks: int = 0

    @property
    def ends(self) -> tuple[int, int]:
        """The fewest and the most blocks."""
        return (
            self.blocks if self.fewest is None else self.fewest,
            self.blocks if self.most is None else self.most,
        )


def kv_capacity(
    gpu: Gpu,
    llm: LlmShape,
    *,
    tp: int,
    memory_utilization: float,
    block_tokens: int,
    activation_reserve_bytes: int | None = None,
    limits: EngineLimits | None = None,
    layers: range | None = None,
    data_parallel: int = 1,
) -> KvCapacity:
    """Blocks of ``block_tokens`` tokens that one replica of ``llm`` on ``tp`` of ``gpu`` can hold.

    ``layers``: those that the replica has (None: all). It holds their weights, with the embedding if layer 0
    is among them and the head if the last one is, and a token's KV of these layers only. ``data_parallel``:
    number of engines that share the routed experts; each has its own blocks.

    ``memory_utilization`` is the share of each GPU the engine may use, ``activation_reserve_bytes`` what it
    keeps free of KV on each GPU. None: what vLLM's profiling finds with ``limits``, or without them the
    catalogue's number, whose source is in ``gpu.source``. An engine's own reported capacity, if known, is
    better than this.
    """
    llm.require_tp(tp)
    kept = kept_free(gpu, llm, tp, limits, activation_reserve_bytes)
    reserve = kept.size_bytes
    _check_settings(memory_utilization, block_tokens, reserve)
    parts = layers or range(llm.layers)
    own_blocks = sequence_blocks_of(llm, tp=tp, block_tokens=block_tokens, layers=parts)
    token_bytes = llm.kv_copies(tp) * llm.kv_bytes_of(parts)
    units = model_units(llm, layers=layers, expert_parts=data_parallel)
    weight_bytes = sum([unit.size_bytes for unit in units])
    block_bytes = token_bytes * block_tokens
    per_gpu = int(gpu.memory_bytes * memory_utilization) - reserve
    blocks = (per_gpu * tp - weight_bytes) // block_bytes
    if blocks <= own_blocks:
        fitting = smallest_tp(
            gpu, llm, memory_utilization, block_tokens, activation_reserve_bytes, limits=limits
        )
        needed = weight_bytes + block_bytes * (1 + own_blocks)
        left = max(0, per_gpu * tp)
        raise HardwareError(_too_large(gpu=gpu, llm=llm, tp=tp, left=left, needed=needed, fitting=fitting))
    tokens = blocks * block_tokens
    arithmetic = (
        f"({gpu.memory_bytes} B x {memory_utilization:g} - {reserve} B reserve) x {tp} GPU"
        f" - {weight_bytes} B weights = {per_gpu * tp - weight_bytes} B; "
        f"// ({token_bytes} B per token x {block_tokens}) = {blocks} blocks = {tokens} tokens"
    )
    arithmetic += sequences_told(own_blocks, blocks, block_tokens, llm.kv_sequence_bytes_on(tp, parts))
    if not kept.terms:
        return KvCapacity(blocks=blocks, tokens=tokens, arithmetic=arithmetic, sequence_blocks=own_blocks)
    spare = -(-kept.error_bytes * tp // block_bytes)
    arithmetic += f"; the reserve as vLLM {limits.version if limits else ''} profiles it: {kept.told()}"
    fewest, most = max(1 + own_blocks, blocks - spare), blocks + spare
    return KvCapacity(
        blocks=blocks,
        tokens=tokens,
        arithmetic=arithmetic,
        fewest=fewest,
        most=most,
        sequence_blocks=own_blocks,
    )


def sequence_blocks_of(llm: LlmShape, *, tp: int, block_tokens: int, layers: range | None = None) -> int:
    """Blocks that each sequence takes of these layers (None: all) for its windows and states.

    A block is one of the layers that grow. The whole window is counted, as it is once a context is longer.
    """
    layers = layers or range(llm.layers)
    block_bytes = llm.kv_copies(tp) * llm.kv_bytes_of(layers) * block_tokens
    if not block_bytes:
        raise HardwareError(
            f"no layer of {llm.name} from {layers.start} to {layers.stop} keeps more KV with every token, "
            "which is not modelled: write a model, or stages, with a layer of full attention each"
        )
    return -(-llm.kv_sequence_bytes_on(tp, layers) // block_bytes)


def sequences_told(sequence_blocks: int, blocks: int, block_tokens: int, size_bytes: int) -> str:
    """What windows and states take, in words; empty if there are none."""
    if not sequence_blocks:
        return ""
    each = sequence_blocks - (-TOLD_TOKENS // block_tokens)
    return (
        f"; windows and states are {size_bytes} B per sequence = {sequence_blocks} blocks, so "
        f"{blocks // each} sequences of {TOLD_TOKENS:,} tokens fit"
    )


def smallest_tp(
    gpu: Gpu,
    llm: LlmShape,
    memory_utilization: float,
    block_tokens: int,
    activation_reserve_bytes: int | None = None,
    *,
    limits: EngineLimits | None = None,
) -> int | None:
    """The least of ``CANDIDATE_TP`` at which weights and one KV block fit; None if none does."""
    for tp in filter(llm.splits_into, CANDIDATE_TP):
        reserve = kept_free(gpu, llm, tp, limits, activation_reserve_bytes).size_bytes
        _check_settings(memory_utilization, block_tokens, reserve)
        own_blocks = sequence_blocks_of(llm, tp=tp, block_tokens=block_tokens)
        block_bytes = llm.kv_copies(tp) * llm.kv_bytes_per_token * block_tokens
        needed = llm.weight_bytes + block_bytes * (1 + own_blocks)
        if (int(gpu.memory_bytes * memory_utilization) - reserve) * tp >= needed:
            return tp
    return None


def kept_free(
    gpu: Gpu, llm: LlmShape, tp: int, limits: EngineLimits | None, activation_reserve_bytes: int | None
) -> Reserve:
    """The bytes that each GPU keeps free; a number that somebody named has no terms."""
    if activation_reserve_bytes is not None:
        return Reserve(activation_reserve_bytes)
    if limits is None:
        return Reserve(gpu.activation_reserve_bytes)
    return vllm_reserve(gpu, llm, tp=tp, limits=limits)


def _check_settings(memory_utilization: float, block_tokens: int, reserve: int) -> None:
    if not 0.0 < memory_utilization <= 1.0:
        raise HardwareError(
            f"memory_utilization={memory_utilization} is not a share; write a number in (0, 1]"
        )
    if block_tokens < 1:
        raise HardwareError(f"block_tokens={block_tokens} is not a block size; write 1 or more, usually 16")
    if reserve < 0:
        raise HardwareError(f"activation_reserve_bytes={reserve} is negative; write 0 or more bytes")


def _too_large(*, gpu: Gpu, llm: LlmShape, tp: int, left: int, needed: int, fitting: int | None) -> str:
    advice = f"write model.tp={fitting}, the smallest that fits" if fitting else _NO_TP
    return (
        f"{llm.name} ({llm.weight_bytes / 1e9:.1f} GB of weights) does not fit into {tp} x {gpu.name}: "
        f"weights and one KV block need {needed / 1e9:.1f} GB, and {left / 1e9:.1f} GB are left after "
        f"engine.gpu_memory_utilization and the reserve; {advice}"
    )
