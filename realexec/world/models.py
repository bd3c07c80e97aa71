"""The models that the workers of a run hold, with their numbers and layer counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Models:
    """Models in the order of the numbers that messages use. A single model may have any name."""

    names: tuple[str, ...]
    layers: tuple[int, ...]

    def number(self, model: str) -> int:
        """Return the number of a model; a single model has 0."""
        return 0 if len(self.layers) == 1 else self.names.index(model)

    def layers_of(self, model: str) -> int:
        """Return the number of layers of a model."""
        return self.layers[self.number(model)]
