"""The models that the workers of a run hold, and which part of them each replica is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Models:
    """In the order of their numbers, by which messages name them. A single one may have any name."""

    names: tuple[str, ...]
    layers: tuple[int, ...]

    def number(self, model: str) -> int:
        """Of a model; the only one is 0."""
        return 0 if len(self.layers) == 1 else self.names.index(model)

    def layers_of(self, model: str) -> int:
        """How many it has."""
        return self.layers[self.number(model)]
