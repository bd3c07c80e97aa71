"""Layer ranges and parts, used by instances, loads, copies, live-scaling targets and stages."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers [first, last) of one model."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last:
            raise ValueError(f"layer range [{self.first}, {self.last}) is empty or negative")

    def __contains__(self, layer: int) -> bool:
        return self.first <= layer < self.last

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Layers [``first``, ``last``) of ``model``: what is loaded, kept, copied and served.

    ``first``, ``last``: a whole model is [0, L). ``layers``: (first, last).

    The embedding belongs to layer 0, final norm and head to the last layer.
    """

    model: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last:
            raise ValueError(f"{self} are none, or negative")

    def __len__(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        return f"layers [{self.first}, {self.last}) of {self.model}"

    @property
    def layers(self) -> tuple[int, int]:
        """[first, last), as actions carry it."""
        return self.first, self.last

    def has(self, first: int, last: int) -> bool:
        """Whether layers [first, last) are among these."""
        return self.first <= first and last <= self.last

    def overlaps(self, other: "Part") -> bool:
        """Whether the two parts share a layer."""
        return self.model == other.model and self.first < other.last and other.first < self.last


@cache
def part_of(model: str, first: int, last: int) -> Part:
    """Return the part, the same object each time, so that lookups compare no fields."""
    return Part(model, first, last)
