"""The keys and values of one request on one worker."""

import torch

from serving.vocabulary.layers import LayerRange


class RequestKV:
    """Contiguous keys and values for a layer range: per layer a pair [1, kv heads, capacity, head dim].

    Positions not yet computed hold zeros: attention may multiply them by a weight of zero, so they must be
    finite. Nothing is shared between requests, so dropping the object frees the memory.
    """

    __slots__ = ("_keys", "_layers", "_values", "capacity")

    def __init__(self, layers: LayerRange, kv_heads: int, head_dim: int, capacity: int) -> None:
        self._layers = layers
        self.capacity = capacity
        shape = (1, kv_heads, capacity, head_dim)
        self._keys = [torch.zeros(shape) for _ in range(len(layers))]
        self._values = [torch.zeros(shape) for _ in range(len(layers))]

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store [1, kv heads, n, head dim] keys and values of positions [start, start + n)."""
        end = start + keys.shape[2]
        if end > self.capacity:
            raise ValueError(f"positions up to {end} do not fit into KV for {self.capacity} tokens")
        self._keys[layer - self._layers.first][:, :, start:end] = keys
        self._values[layer - self._layers.first][:, :, start:end] = values

    def read(self, layer: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys and values of positions [0, end), each [1, kv heads, end, head dim]."""
        index = layer - self._layers.first
        return self._keys[index][:, :, :end], self._values[index][:, :, :end]
