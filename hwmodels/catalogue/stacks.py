"""Models without KV by name: stacks.yaml of the catalogue."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from hwmodels.catalogue import load_llm, read_yaml
from hwmodels.errors import HardwareError
from hwmodels.models.layer_stack import LayerStack
from hwmodels.models.load_units import model_units, split
from hwmodels.models.stage_cuts import CUTS, Cut, balanced_cut, even_cut, given_cut

STACKS_FILE: Final = "stacks.yaml"
PUBLISHED: Final = "published"
BYTES_PER_ACTIVATION: Final = 2  # 16 bits


def stack_names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(read_yaml(STACKS_FILE)))


def is_stack(name: str) -> bool:
    """Whether the name is that of a model without KV."""
    return name in read_yaml(STACKS_FILE)


def stack_of_shape(name: str) -> LayerStack | None:
    """The pass over a prompt of the language model called ``name``, if one is published."""
    for stack, entry in read_yaml(STACKS_FILE).items():
        if entry.get("of") == name:
            return load_stack(stack)
    return None


@cache
def load_stack(name: str) -> LayerStack:
    """The stack called ``name``. Raises HardwareError."""
    entry: Mapping[str, Any] | None = read_yaml(STACKS_FILE).get(name)
    if entry is None:
        raise HardwareError(
            f"{name} is not a model without KV cache: write one of {', '.join(stack_names())}"
        )
    sizes = _layers_of_shape(entry["of"]) if "of" in entry else _equal_layers(entry)
    layers, cut = len(sizes), entry["cut"]
    cuts = even_cut(layers, cut) if isinstance(cut, int) else given_cut(layers, cut)
    tokens = entry["tokens"]
    sent = entry.get("activation_bytes")
    if sent is None:
        sent = tokens * load_llm(entry["of"]).hidden * BYTES_PER_ACTIVATION
    return LayerStack(
        name=name,
        layer_bytes=sizes,
        layer_s=(entry["execution_s"] / layers,) * layers,
        tokens=tokens,
        activation_bytes=int(sent),
        cut=tuple([len(stage) for stage in cuts]),
        source=entry["source"],
        labels=tuple(entry.get("labels", ())),
    )


def cut_stack(stack: LayerStack, kind: str, stages: int | None) -> Cut:
    """``how``: ``published`` or one of ``CUTS``, into as many ``stages`` (None: as published).

    Raises HardwareError.
    """
    count = len(stack.cut) if stages is None else stages
    if kind == PUBLISHED:
        if count != len(stack.cut):
            raise HardwareError(
                f"{stack.name} is published in {len(stack.cut)} stages, not in {count}: write "
                f"pipeline.cut={' or '.join(CUTS)}"
            )
        return given_cut(stack.layers, stack.cut)
    if kind == "layers":
        return even_cut(stack.layers, count)
    return balanced_cut(stack.layer_bytes if kind == "bytes" else stack.layer_s, 0.0, 0.0, count)


def _equal_layers(entry: Mapping[str, Any]) -> tuple[int, ...]:
    layers = entry["layers"]
    return tuple(split(int(entry["bytes"]), layers, layer) for layer in range(layers))


def _layers_of_shape(name: str) -> tuple[int, ...]:
    """The embedding is in the first layer, a separate head in the last one."""
    first, *units = model_units(load_llm(name))
    sizes = [unit.size_bytes for unit in units if unit.layer is not None]
    sizes[0] += first.size_bytes
    sizes[-1] += sum(unit.size_bytes for unit in units if unit.layer is None)
    return tuple(sizes)
