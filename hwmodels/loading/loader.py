"""What a loader's software adds to a path: a constant and a rate, per loader and tier."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

from hwmodels.catalogue import read_yaml
from hwmodels.errors import HardwareError
from hwmodels.loading.plan import SOURCE, Hop

LOADERS_FILE: Final = "loaders.yaml"
TIER_OF_PLACE: Final = {"dram": "dram", "ssd": "ssd", "gpu_ssd": "ssd", "remote": "remote"}


@dataclass(frozen=True, slots=True)
class Loader:
    """Speed at which one loader reads from one tier into one GPU, if the path is not slower.

    tier: ``dram`` (the file is in the host's memory), ``ssd`` or ``remote``. constant_s: before the first
    byte, for any size. rate_bytes_per_s: its own, infinite if only the path limits it. Raises HardwareError.
    """

    name: str
    tier: str
    constant_s: float
    rate_bytes_per_s: float
    source: str

    def __post_init__(self) -> None:
        where = f"loader {self.name} on {self.tier}"
        if not (math.isfinite(self.constant_s) and self.constant_s >= 0):
            raise HardwareError(f"{where} has constant_s {self.constant_s}: write seconds of at least 0")
        if not self.rate_bytes_per_s > 0:
            raise HardwareError(
                f"{where} has rate_bytes_per_s {self.rate_bytes_per_s}: write a rate above 0 (.inf for none)"
            )

    def load_s(self, size_bytes: float, path_bytes_per_s: float) -> float:
        """Seconds for ``size_bytes`` alone on a path of that rate: constant + bytes / the lower rate."""
        if not path_bytes_per_s > 0:
            raise HardwareError(f"a path has a rate of {path_bytes_per_s} bytes/s: write a rate above 0")
        return self.constant_s + size_bytes / min(path_bytes_per_s, self.rate_bytes_per_s)

    def hop(
        self, links: tuple[int, ...], *, weight: float = 1.0, priority: int = 0, latency_s: float = 0.0
    ) -> Hop:
        """The first hop of a load with it: its rate is the cap, the fabric models the path.

        ``constant_s`` is not included: the caller begins the load that much later.
        """
        return Hop(
            links,
            weight=weight,
            cap_bytes_per_s=self.rate_bytes_per_s,
            priority=priority,
            latency_s=latency_s,
            after=SOURCE,
        )


def loader_names() -> tuple[str, ...]:
    """Every loader in loaders.yaml."""
    return tuple(sorted(read_yaml(LOADERS_FILE)["loaders"]))


@cache
def load_loader(name: str, tier: str) -> Loader:
    """The loader called ``name`` on a tier (or on the kind of place of that tier).

    Raises HardwareError with the existing names or tiers: an unmeasured tier is not guessed.
    """
    loaders = read_yaml(LOADERS_FILE)["loaders"]
    if name not in loaders:
        raise HardwareError(f"unknown loader {name!r}: write one of {', '.join(loader_names())}")
    tiers = loaders[name]
    known = TIER_OF_PLACE.get(tier, tier)
    if known not in tiers:
        raise HardwareError(
            f"{LOADERS_FILE} has no rate of loader {name} from {tier!r}: write one of "
            f"{', '.join(sorted(tiers))}, or loader 'direct'"
        )
    return Loader(name=name, tier=known, **tiers[known])
