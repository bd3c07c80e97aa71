"""Places of the parameters of a layer range in one flat stretch of bytes, unit by unit.

Units have the driver's numbers: 0 is the embedding, then layer 0, layer 1, ..., then the head (final norm and
projection to the vocabulary). The embedding belongs to layer 0, the head to the last layer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serving.vocabulary.layers import LayerRange

EMBEDDING: Final = 0
ALIGN_BYTES: Final = 64  # a cache line, and enough for every dtype and vector width of torch

# Names and shapes of a unit's parameters.
Parameters = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """A parameter's place; ``offset`` is its first byte, counted from the beginning of the layout."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class LayerLayout:
    """Bytes of layers [first, last), their embedding and head.

    ``units``: the parameters of every unit of the whole model. A unit has the same bytes in the same order in
    every layout of the model, so that one layout can be filled from another. A ``tied`` head is the
    embedding: if both are here, the layout holds its bytes once, and they belong to both units.
    """

    def __init__(self, units: Sequence[Parameters], itemsize: int, layers: LayerRange, tied: bool) -> None:
        self.layers = layers
        self.model_layers = len(units) - 2
        if layers.last > self.model_layers:
            raise ValueError(
                f"layers [{layers.first}, {layers.last}) of a model that has {self.model_layers} layers"
            )
        self.units: tuple[int, ...] = units_of(layers, self.model_layers)
        self._alias = tied and EMBEDDING in self.units and self.head in self.units
        self._places: dict[int, tuple[ParameterPlace, ...]] = {}
        self.size_bytes = 0
        for unit in self.units:
            self._places[unit] = tuple(
                self._place(name, shape, itemsize) for name, shape in units[unit].items()
            )

    @property
    def head(self) -> int:
        """The number of the last unit."""
        return self.model_layers + 1

    def places(self, unit: int) -> tuple[ParameterPlace, ...]:
        """Parameters of a unit; ValueError for a unit that is not of these layers."""
        if unit not in self._places:
            raise ValueError(
                f"unit {unit} is not among those of layers [{self.layers.first}, {self.layers.last})"
            )
        return self._places[unit]

    def segments(self, unit: int) -> list[tuple[int, int]]:
        """(offset, size in bytes) of each parameter of a unit, in the same order in every layout."""
        return [(place.offset, place.size_bytes) for place in self.places(unit)]

    def unit_bytes(self, unit: int) -> int:
        """Total bytes of a unit's parameters, without gaps between them."""
        return sum(place.size_bytes for place in self.places(unit))

    def shared(self, unit: int, place: ParameterPlace) -> bool:
        """Whether the parameter's bytes belong to an earlier unit, as a tied head's do to the embedding."""
        return self._alias and unit == self.head and place.offset == self._places[EMBEDDING][0].offset

    def head_units(self) -> tuple[int, ...]:
        """The units that must be whole for the head to run."""
        return (EMBEDDING, self.head) if self._alias else (self.head,)

    def _place(self, name: str, shape: tuple[int, ...], itemsize: int) -> ParameterPlace:
        size_bytes = math.prod(shape) * itemsize
        if self._alias and name == "lm_head.weight":
            return ParameterPlace(name, shape, self._places[EMBEDDING][0].offset, size_bytes)
        offset = self.size_bytes
        self.size_bytes += -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
        return ParameterPlace(name, shape, offset, size_bytes)


def units_of(layers: LayerRange, model_layers: int) -> tuple[int, ...]:
    """Numbers of the units of these layers, ascending."""
    embedding = (EMBEDDING,) if layers.first == 0 else ()
    head = (model_layers + 1,) if layers.last == model_layers else ()
    return (*embedding, *range(layers.first + 1, layers.last + 1), *head)
