"""Layer ranges: the one noun behind instances, live-scaling targets and pipeline stages."""

from dataclasses import dataclass


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
