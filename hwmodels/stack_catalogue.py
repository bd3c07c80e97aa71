"""Models without KV by name: stacks.yaml of the catalogue."""

from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any, Final

from hwmodels.catalogue import load_llm, read_yaml
from hwmodels.errors import HardwareError
from hwmodels.layer_stack import LayerStack, even_cut
from hwmodels.loading.units import model_units, split

STACKS_FILE: Final = "stacks.yaml"
BYTES_PER_ACTIVATION: Final = 2  # 16 bits


def stack_names() -> tuple[str, ...]:
    """Every one, sorted."""
    return tuple(sorted(read_yaml(STACKS_FILE)))


def is_stack(name: str) -> bool:
    """Whether the name is that of a model without KV."""
    return name in read_yaml(STACKS_FILE)


@cache
def load_stack(name: str) -> LayerStack:
    """The stack called ``name``. Raises HardwareError."""
    entry: Mapping[str, Any] | None = read_yaml(STACKS_FILE).get(name)
    if entry is None:
        raise HardwareError(f"{name} is no model without KV: write one of {', '.join(stack_names())}")
    sizes = _layers_of_shape(entry["of"]) if "of" in entry else _equal_layers(entry)
    layers, cut = len(sizes), entry["cut"]
    bounds = even_cut([1.0] * layers, cut) if isinstance(cut, int) else tuple(accumulate(cut[:-1]))
    tokens = entry["tokens"]
    sent = entry.get("activation_bytes")
    if sent is None:
        sent = tokens * load_llm(entry["of"]).hidden * BYTES_PER_ACTIVATION
    return LayerStack(
        name,
        sizes,
        (entry["execution_s"] / layers,) * layers,
        tokens,
        int(sent),
        bounds,
        entry["source"],
        tuple(entry.get("labels", ())),
    )


def _equal_layers(entry: Mapping[str, Any]) -> tuple[int, ...]:
    layers = entry["layers"]
    return tuple(split(int(entry["bytes"]), layers, layer) for layer in range(layers))


def _layers_of_shape(name: str) -> tuple[int, ...]:
    """The embedding with the first layer, a head of its own with the last one."""
    first, *others = model_units(load_llm(name))
    sizes = [unit.size_bytes for unit in others if unit.layer is not None]
    sizes[0] += first.size_bytes
    sizes[-1] += sum(unit.size_bytes for unit in others if unit.layer is None)
    return tuple(sizes)
