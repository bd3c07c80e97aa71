"""Which units of which models are complete at which endpoint: the simulated world's parameter book."""

from collections.abc import Mapping

from hwmodels.models.load_units import Shape, Unit
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.layers import Part


class Residency:
    """By endpoint and model a set of units, as bits: 0 the embedding, 1 + n layer n, 1 + L the head.

    The world does not see evictions from a host's memory, so for a host only the last load counts.
    """

    __slots__ = ("_layers", "_there")

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._layers = {name: shape.layers for name, shape in shapes.items()}
        self._there: dict[Endpoint, dict[str, int]] = {}

    def layers_of(self, model: str) -> int:
        """How many layers the model has."""
        return self._layers[model]

    def put(self, endpoint: Endpoint, part: Part) -> None:
        """Record that the endpoint has the whole part."""
        units = self._there.setdefault(endpoint, {})
        units[part.model] = units.get(part.model, 0) | self._units(part)

    def came(self, endpoint: Endpoint, model: str, unit: Unit) -> None:
        """Note one more complete unit."""
        units = self._there.setdefault(endpoint, {})
        units[model] = units.get(model, 0) | self._bit(model, unit)

    def begin(self, endpoint: Endpoint, part: Part) -> None:
        """Begin a load to this endpoint: partly loaded units stay, a complete part is loaded anew."""
        if endpoint[0] != "replica" or self.has(endpoint, part):
            self._there.setdefault(endpoint, {})[part.model] = self._found(
                endpoint, part.model
            ) & ~self._units(part)

    def clear(self, endpoint: Endpoint) -> None:
        """Note that the endpoint has nothing."""
        self._there.pop(endpoint, None)

    def has(self, endpoint: Endpoint, part: Part) -> bool:
        """Whether the endpoint has all of the part."""
        wanted = self._units(part)
        return self._found(endpoint, part.model) & wanted == wanted

    def has_unit(self, endpoint: Endpoint, model: str, unit: Unit) -> bool:
        """Whether the endpoint has this unit."""
        return self._found(endpoint, model) & self._bit(model, unit) != 0

    def has_layers(self, endpoint: Endpoint, model: str, first: int, last: int) -> bool:
        """Whether the endpoint has layers [first, last)."""
        wanted = (1 << last - first) - 1
        return self._found(endpoint, model) >> 1 + first & wanted == wanted

    def layers_there(self, endpoint: Endpoint, part: Part) -> int:
        """How many layers of the part, from its first on, the endpoint has."""
        layers, count = self._found(endpoint, part.model) >> 1 + part.first, 0
        while layers & 1 and count < len(part):
            layers >>= 1
            count += 1
        return count

    def _found(self, endpoint: Endpoint, model: str) -> int:
        there = self._there.get(endpoint)
        return 0 if there is None else there.get(model, 0)

    def _units(self, part: Part) -> int:
        first = part.first + 1 if part.first else 0
        last = part.last + 1 + (part.last == self._layers[part.model])
        return (1 << last) - (1 << first)

    def _bit(self, model: str, unit: Unit) -> int:
        if unit.layer is not None:
            return 2 << unit.layer
        return 1 if unit.name == "embedding" else 2 << self._layers[model]
