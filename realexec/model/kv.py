"""The KV cache of one request on one worker."""

from typing import Final

import torch

from realexec.memory.arena import ArenaFull
from realexec.memory.tensor_memory import ByteRange, Memory, Region
from serving.vocabulary.layers import LayerRange

_PAIR: Final = 2  # keys, then values


class KvFull(Exception):
    """There is no memory for the KV of one more request. Requests that have KV keep it."""


class KvShape:
    """The layout of keys and values: those of one position in one layer are adjacent, head after head."""

    __slots__ = ("dtype", "head_dim", "heads", "layers")

    def __init__(self, layers: LayerRange, heads: int, head_dim: int, dtype: torch.dtype) -> None:
        self.layers, self.heads, self.head_dim, self.dtype = layers, heads, head_dim, dtype

    @property
    def position_bytes(self) -> int:
        """Bytes of one position in one layer."""
        element_bytes: int = self.dtype.itemsize
        return _PAIR * self.heads * self.head_dim * element_bytes

    def size_bytes(self, positions: int) -> int:
        """Bytes of this many positions in all layers."""
        return len(self.layers) * positions * self.position_bytes


class RequestKV:
    """Memory for ``capacity`` positions of every layer; `written` counts the filled ones, layer by layer.

    Positions not yet computed hold zeros: attention may multiply them by a weight of zero, so they must be
    finite. Keys and values of one position are adjacent, so that positions [p, q) of a layer are one byte
    range, whatever the capacity. Requests share no KV; ``close`` frees the memory.
    """

    __slots__ = ("_memory", "_region", "_tensor", "capacity", "shape", "written")

    def __init__(self, shape: KvShape, capacity: int, memory: Memory) -> None:
        self.shape, self.capacity, self._memory = shape, capacity, memory
        size_bytes = shape.size_bytes(capacity)
        try:
            self._region: Region = memory.take(size_bytes)
        except ArenaFull as full:
            raise KvFull(
                f"KV for {capacity} tokens in {len(shape.layers)} layers does not fit here: {full}"
            ) from None
        flat = memory.tensor(self._region)[:size_bytes].view(shape.dtype)
        self._tensor = flat.view(len(shape.layers), capacity, _PAIR, shape.heads, shape.head_dim)
        self._tensor.zero_()
        # For each layer, how many positions are here, from the first on.
        self.written: list[int] = [0] * len(shape.layers)

    @property
    def whole_positions(self) -> int:
        """How many positions, from the first on, are here in every layer."""
        return min(self.written)

    def positions(self, layer: int) -> int:
        """How many positions of this layer are here, from the first on."""
        return self.written[layer - self.shape.layers.first]

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store [1, kv heads, n, head dim] keys and values of positions [start, start + n)."""
        end = start + keys.shape[2]
        self._extend(layer, start, end)
        room = self._tensor[layer - self.shape.layers.first, start:end]
        room[:, 0] = keys[0].transpose(0, 1)
        room[:, 1] = values[0].transpose(0, 1)

    def write_one(self, layer: int, position: int, pair: torch.Tensor) -> None:
        """Store the keys and values [2, kv heads, head dim] of one position, by one copy."""
        self._extend(layer, position, position + 1)
        self._tensor[layer - self.shape.layers.first, position] = pair

    def read(self, layer: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys and values of positions [0, end), each [1, kv heads, end, head dim]."""
        pairs = self.pairs(layer, end).permute(1, 2, 0, 3)
        return pairs[0][None], pairs[1][None]

    def pairs(self, layer: int, end: int) -> torch.Tensor:
        """View of positions [0, end), each keys and values: [end, 2, kv heads, head dim]."""
        return self._tensor[layer - self.shape.layers.first, :end]

    def ranges(self, first: int, last: int, start: int, end: int) -> list[ByteRange]:
        """Byte ranges of positions [start, end) of layers [first, last); the same order on every worker."""
        self._require_room(first, start, end)
        self._require_room(last - 1, start, end)
        size_bytes, row = (end - start) * self.shape.position_bytes, self.capacity * self.shape.position_bytes
        begin = self._region.offset + start * self.shape.position_bytes
        return [(begin + (layer - self.shape.layers.first) * row, size_bytes) for layer in range(first, last)]

    def came(self, first: int, last: int, start: int, end: int) -> None:
        """Mark positions [start, end) of layers [first, last) as here: a transport filled their `ranges`."""
        self._memory.from_peer(self.ranges(first, last, start, end))
        for layer in range(first, last):
            self._extend(layer, start, end)

    def publish(self, first: int, last: int, start: int, end: int) -> list[ByteRange]:
        """Prepare positions that are here for a peer to read; returns their `ranges`."""
        short = [layer for layer in range(first, last) if self.positions(layer) < end]
        if short:
            raise ValueError(f"layer {short[0]} has {self.positions(short[0])} positions here, not {end}")
        ranges = self.ranges(first, last, start, end)
        self._memory.for_peer(ranges)
        return ranges

    def close(self) -> None:
        """Free the memory."""
        self._memory.give(self._region)

    def _extend(self, layer: int, start: int, end: int) -> None:
        self._require_room(layer, start, end)
        if start > self.positions(layer):
            raise ValueError(
                f"positions from {start} on come, but layer {layer} has only {self.positions(layer)} so far"
            )
        index = layer - self.shape.layers.first
        self.written[index] = max(self.written[index], end)

    def _require_room(self, layer: int, start: int, end: int) -> None:
        if layer not in self.shape.layers:
            raise ValueError(f"layer {layer} has no KV here")
        if not 0 <= start < end <= self.capacity:
            raise ValueError(f"positions up to {end} do not fit into KV for {self.capacity} tokens")
