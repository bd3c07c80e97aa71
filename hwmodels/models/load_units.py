"""The units in which a model is moved: embedding, each layer, head; and the chunks of large units."""

from collections.abc import Sequence
from dataclasses import dataclass

from hwmodels.errors import HardwareError
from hwmodels.models.layer_stack import LayerStack
from hwmodels.models.llm_shape import LlmShape

Shape = LlmShape | LayerStack


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a model that is usable only as a whole.

    name: ``embedding``, ``layer 0`` ..., ``head``. layer: the layer's number, None for the other two.
    """

    name: str
    layer: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParameterChunk:
    """Bytes sent at once. unit: index of its unit; last: this chunk completes the unit."""

    unit: int
    size_bytes: int
    last: bool


def model_units(
    shape: Shape, tp: int = 1, rank: int = 0, layers: range | None = None, expert_parts: int = 1
) -> tuple[Unit, ...]:
    """The units of tensor-parallel rank ``rank`` of ``tp`` in the order they are needed.

    The ranks' bytes add up to ``shape.weight_bytes``: what real ranks replicate (norms, below 0.01 %) is
    split, too. The final norm is in the head, or in the embedding if that is also the head. ``layers``: only
    this range (step 1); the embedding then comes with layer 0 and the head with the last layer, with a copy
    of a tied embedding if layer 0 is elsewhere. ``expert_parts``: number of engines in a data-parallel group;
    each has such a part of the routed experts, and everything else. Raises HardwareError.
    """
    shape.require_tp(tp)
    wanted = range(shape.layers) if layers is None else layers
    if not wanted or wanted.step != 1 or wanted.start < 0 or wanted.stop > shape.layers:
        raise HardwareError(
            f"{wanted} is not a range of layers of {shape.name}: write layers within 0 to {shape.layers}"
        )
    first, last = wanted.start == 0, wanted.stop == shape.layers
    if isinstance(shape, LayerStack):
        return _stack_units(shape, wanted)
    table = shape.embedding_parameters
    positions = shape.position_rows * shape.hidden
    norm = shape.final_norm_parameters
    head_is_embedding = shape.tied_embeddings and first and last
    width = shape.bytes_per_parameter
    whole: list[Unit] = []
    if first:
        whole.append(
            Unit("embedding", None, width * (table + positions + (norm if head_is_embedding else 0)))
        )
    whole += [Unit(f"layer {layer}", layer, shape.layer_bytes(layer, expert_parts)) for layer in wanted]
    if last and not head_is_embedding:
        whole.append(Unit("head", None, width * (table + norm)))
    return shard(whole, tp, rank)


def _stack_units(stack: LayerStack, wanted: range) -> tuple[Unit, ...]:
    """Embedding and head are counted with the stack's layers: as units they exist with 0 bytes."""
    units = [Unit(f"layer {layer}", layer, stack.layer_bytes[layer]) for layer in wanted]
    first = [Unit("embedding", None, 0)] if wanted.start == 0 else []
    return (*first, *units, *([Unit("head", None, 0)] if wanted.stop == stack.layers else []))


def layers_first(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The same units with the layers first: for instances that at first get activations, not prompts."""
    return tuple(sorted(units, key=lambda unit: unit.layer is None))


def shard(units: Sequence[Unit], count: int, index: int) -> tuple[Unit, ...]:
    """Part ``index`` of ``count`` of every unit, to the byte: together the parts are the units."""
    if not 0 <= index < count:
        raise HardwareError(f"there is no part {index} of {count} parts: write a part from 0 to {count - 1}")
    return tuple(Unit(unit.name, unit.layer, split(unit.size_bytes, count, index)) for unit in units)


def split(size_bytes: int, count: int, index: int) -> int:
    """Bytes of part ``index`` when ``size_bytes`` are cut into ``count`` parts that differ by one at most."""
    return size_bytes // count + (index < size_bytes % count)


def cut_into_chunks(units: Sequence[Unit], chunk_bytes: int | None = None) -> tuple[ParameterChunk, ...]:
    """Cut units of more than ``chunk_bytes`` evenly into the fewest chunks that are not larger.

    None: the size of the largest layer, or of the largest unit if there is no layer.
    """
    if chunk_bytes is None:
        sizes = [unit.size_bytes for unit in units if unit.layer is not None]
        chunk_bytes = max(sizes or [unit.size_bytes for unit in units], default=1) or 1
    if chunk_bytes < 1:
        raise HardwareError(f"chunk_bytes={chunk_bytes} is too small: write at least 1")
    chunks: list[ParameterChunk] = []
    for index, unit in enumerate(units):
        count = max(1, -(-unit.size_bytes // chunk_bytes))
        chunks += [
            ParameterChunk(index, split(unit.size_bytes, count, part), part == count - 1)
            for part in range(count)
        ]
    return tuple(chunks)
