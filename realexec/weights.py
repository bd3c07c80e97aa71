"""The parameters of a layer range in memory that peers can read, whole or not yet."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from realexec.layer_layout import LayerLayout
from realexec.tensor_memory import ByteRange, Memory, Region
from realexec.weight_sources import WeightSource


class Copy(NamedTuple):
    """Bytes to read: where they lie at the peer, where they go here."""

    remote_offset: int
    local_offset: int
    size_bytes: int


class Weights:
    """One tensor per parameter, each a view of the region; nothing moves when its bytes come.

    A unit is ``whole`` when all its bytes are here. A transport writes to `segments`, and `came` is called
    then; `fill` brings them from a source.
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
        """Unit by unit, a tensor for each parameter by name."""
        return {
            unit: {
                place.name: flat[place.offset : place.offset + place.size_bytes].view(dtype).view(place.shape)
                for place in self.layout.places(unit)
            }
            for unit in self.layout.units
        }

    @property
    def whole_layers(self) -> int:
        """How many layers are whole, from the first of the range on without a gap."""
        first = self.layout.layers.first
        units = range(first + 1, self.layout.layers.last + 1)
        return next((unit - first - 1 for unit in units if unit not in self.whole), len(units))

    def tensors(self, unit: int) -> dict[str, torch.Tensor]:
        """The unit's parameters by name, whole or not."""
        return self._tensors[unit]

    def on_host(self, unit: int) -> dict[str, torch.Tensor]:
        """The same ones where peers read them."""
        return self._host[unit]

    def segments(self, unit: int) -> list[ByteRange]:
        """Where the unit's parameters lie in the arena, in the same order at every peer."""
        return [(self.region.offset + offset, size) for offset, size in self.layout.segments(unit)]

    def copies(self, unit: int, remote: Sequence[ByteRange]) -> list[Copy]:
        """What to read from a peer whose `segments` of this unit are ``remote``.

        A tied head that lies here as the embedding comes with that one, and is not read again.
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
        """Bring the unit from a source that this process can read, and to where peers read it."""
        with self._memory.lane():
            for place in self.layout.places(unit):
                if not self.layout.shared(unit, place):
                    self._tensors[unit][place.name].copy_(source.read(place.name, place.shape))
        self.whole.add(unit)
        self._memory.for_peer(self.segments(unit))

    def came(self, unit: int) -> None:
        """The unit's bytes have come by a transport: it can be computed with, and be read by peers."""
        self._memory.from_peer(self.segments(unit))
        self.whole.add(unit)

    def copy_from(self, unit: int, other: "Weights") -> None:
        """Bring the unit from the weights of another layout of the model, such as the host's cache.

        It can be computed with before peers can read it, which they may when this returns.
        """
        if unit not in other.whole:
            raise ValueError(f"unit {unit} is not whole there")
        with self._memory.lane():
            for name, tensor in other.on_host(unit).items():
                self._tensors[unit][name].copy_(tensor, non_blocking=True)
        self.whole.add(unit)
        self._memory.for_peer(self.segments(unit))  # where peers read the arena

    def forget(self, units: Iterable[int] | None = None) -> None:
        """The bytes of these units (None: of all) are overwritten; they are not whole any more."""
        self.whole.difference_update(self.layout.units if units is None else units)

    def close(self) -> None:
        """The memory is free again."""
        self.whole.clear()
        self._memory.give(self.region)
