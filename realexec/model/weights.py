"""The parameters of a layer range, complete or partly loaded, in memory that peers can read."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from realexec.memory.tensor_memory import ByteRange, Memory, Region
from realexec.model.layer_layout import LayerLayout
from realexec.model.weight_sources import WeightSource


class Copy(NamedTuple):
    """Bytes to read: their place at the peer, and their place here."""

    remote_offset: int
    local_offset: int
    size_bytes: int


class Weights:
    """One tensor per parameter, each a view of the region; no bytes move again once they have arrived.

    A unit is ``whole`` when all its bytes are here. Either a transport writes to `segments` and its caller
    then calls `came`, or `fill` reads the unit from a source.
    """

    def __init__(
        self, layout: LayerLayout, memory: Memory, dtype: torch.dtype, region: Region | None = None
    ) -> None:
        self.layout = layout
        self._memory = memory
        self.region: Region = memory.take(layout.size_bytes) if region is None else region
        if self.region.size_bytes < layout.size_bytes:
            raise ValueError(
                f"the layers need {layout.size_bytes} bytes, but the region has {self.region.size_bytes}"
            )
        self.whole: set[int] = set()
        self._tensors = self._views(memory.tensor(self.region), dtype)
        self._host = self._views(memory.host(self.region), dtype) if memory.apart else self._tensors

    def _views(self, flat: torch.Tensor, dtype: torch.dtype) -> dict[int, dict[str, torch.Tensor]]:
        """Make the tensors of each unit, by parameter name."""
        return {
            unit: {
                place.name: flat[place.offset : place.offset + place.size_bytes].view(dtype).view(place.shape)
                for place in self.layout.places(unit)
            }
            for unit in self.layout.units
        }

    @property
    def whole_layers(self) -> int:
        """The number of layers that are whole, from the first of the range on without a gap."""
        first = self.layout.layers.first
        units = range(first + 1, self.layout.layers.last + 1)
        return next((unit - first - 1 for unit in units if unit not in self.whole), len(units))

    def tensors(self, unit: int) -> dict[str, torch.Tensor]:
        """The unit's parameters by name, whole or not."""
        return self._tensors[unit]

    def on_host(self, unit: int) -> dict[str, torch.Tensor]:
        """The unit's parameters by name, in the memory that peers read."""
        return self._host[unit]

    def segments(self, unit: int) -> list[ByteRange]:
        """Byte ranges of the unit's parameters in the arena, in the same order at every peer."""
        return [(self.region.offset + offset, size) for offset, size in self.layout.segments(unit)]

    def copies(self, unit: int, remote: Sequence[ByteRange]) -> list[Copy]:
        """List what to read from a peer whose `segments` of this unit are ``remote``.

        A tied head that shares the embedding's bytes here comes with the embedding, and is not read again.
        """
        places, local = self.layout.places(unit), self.segments(unit)
        if [size for _, size in remote] != [size for _, size in local]:
            raise ValueError(f"unit {unit} has other bytes at the peer: {list(remote)} for {local}")
        return [
            Copy(theirs, ours, size)
            for place, (ours, size), (theirs, _) in zip(places, local, remote)
            if not self.layout.shared(unit, place)
        ]

    def fill(self, unit: int, source: WeightSource) -> None:
        """Read the unit from a source on this machine, and copy it to where peers read it."""
        with self._memory.copy_stream():
            for place in self.layout.places(unit):
                if not self.layout.shared(unit, place):
                    self._tensors[unit][place.name].copy_(source.read(place.name, place.shape))
        self.whole.add(unit)
        self._memory.for_peer(self.segments(unit))

    def came(self, unit: int) -> None:
        """Mark the unit as whole, after a transport brought its bytes: usable here and readable by peers."""
        self._memory.from_peer(self.segments(unit))
        self.whole.add(unit)

    def copy_from(self, unit: int, other: "Weights") -> None:
        """Copy the unit from another layout of the model, such as the host's cache.

        This worker can compute with it before peers can read it; peers can when this returns.
        """
        if unit not in other.whole:
            raise ValueError(f"unit {unit} is not whole there")
        with self._memory.copy_stream():
            for name, tensor in other.on_host(unit).items():
                self._tensors[unit][name].copy_(tensor, non_blocking=True)
        self.whole.add(unit)
        self._memory.for_peer(self.segments(unit))  # copies it to the arena, where peers read

    def forget(self, units: Iterable[int] | None = None) -> None:
        """Mark these units (None: all) as not whole, because their bytes are being overwritten."""
        self.whole.difference_update(self.layout.units if units is None else units)

    def close(self) -> None:
        """Free the memory."""
        self.whole.clear()
        self._memory.give(self.region)
