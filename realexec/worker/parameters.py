"""The parameters in a worker's memory: a part of one model on the GPU, whole models on the host."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

from realexec.memory.shared_copies import SharedCopies
from realexec.memory.tensor_memory import HostMemory, Memory, Region
from realexec.model.layer_layout import LayerLayout
from realexec.model.models import model_spec
from realexec.model.weight_sources import WeightSource
from realexec.model.weights import Weights
from serving.vocabulary.actions import Span
from serving.vocabulary.layers import LayerRange

REPLICA, HOST = "replica", "host"


class HostedModels:
    """The models of a run by number: their keys, and a seed for each, so that two of one shape differ."""

    def __init__(self, models: Sequence[Mapping[str, Any]], seed: int) -> None:
        self.keys = list(models)
        self.seeds = [seed + number for number in range(len(models))]
        self.specs = [model_spec(model) for model in models]
        self.sources: list[WeightSource] = [
            spec.source(seed) for spec, seed in zip(self.specs, self.seeds, strict=True)
        ]
        self.layout = cache(self._layout)
        # Cached for all layers: a load begins with a layout that has not been computed yet.
        self._units = cache(lambda number: self.specs[number].units())

    def __len__(self) -> int:
        return len(self.keys)

    def _layout(self, model: int, layers: Span | None) -> LayerLayout:
        """Compute where parameters of these layers (None: of all) lie."""
        span = None if layers is None else LayerRange(*layers)
        return self.specs[model].layout(span, self._units(model))


def copies_on_host(
    models: HostedModels, memory: HostMemory, shared: SharedCopies | None = None
) -> list[Weights]:
    """Have every model, whole, in the host's memory; in ``shared`` memory the first worker puts them."""
    copies = [
        Weights(models.layout(number, None), memory, spec.dtype) for number, spec in enumerate(models.specs)
    ]
    with nullcontext(True) if shared is None else shared.filling() as missing:
        for weights, source in zip(copies, models.sources, strict=True):
            for unit in weights.layout.units if missing else ():
                weights.fill(unit, source)
            weights.whole.update(weights.layout.units)
    return copies


class Parameters:
    """A worker's parameters. ``region``: GPU memory as large as the largest model. ``replica``: its present
    content, of model ``model``. ``host``: every model's copy, empty if the host has no copies."""

    def __init__(self, models: HostedModels, memory: Memory, host: Sequence[Weights]) -> None:
        self.models = models
        sizes = [models.layout(number, None).size_bytes for number in range(len(models))]
        self.region: Region = memory.take(max(sizes))
        self.host = list(host)
        self.replica: Weights | None = None
        self.model = -1

    def at(self, place: str, model: int) -> Weights:
        """A model's weights in the memory of the GPU or the host; ValueError if the GPU has another model."""
        if place == HOST:
            return self.host[model]
        if self.replica is None or model != self.model:
            raise ValueError(f"model {self.model} is in the GPU's memory here, not {model}")
        return self.replica

    def regions(self) -> dict[str, int]:
        """Where each region begins, for peers."""
        hosts = {f"{HOST} {number}": copy.region.offset for number, copy in enumerate(self.host)}
        return {REPLICA: self.region.offset, **hosts}
