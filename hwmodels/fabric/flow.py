"""The flows that the fabric moves, and its report of finished ones."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from hwmodels.errors import HardwareError

PARAMETERS: Final = "parameters"
KV: Final = "kv"
ACTIVATIONS: Final = "activations"
KINDS: Final = (PARAMETERS, KV, ACTIVATIONS)
# One byte in eleven days. For shares of a link near 1e-308 bytes/s a float has too few digits.
LEAST_BYTES_PER_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """Bytes that cross all of ``links`` at one rate at once.

    links: indices of the fabric's links, each at most once: a path, or the tree of a broadcast that hardware
    copies (one out-link, many in-links); empty for a move within one memory, which takes only the latency.
    size_bytes: at least 0. weight: its share relative to others on the same link, above 0. cap_bytes_per_s:
    its highest rate. priority: higher ones are served first, lower ones share the rest; equal ones share
    max-min fairly. latency_s: before the first byte crosses; the links are free for that time. kind: for
    counting, one of ``KINDS``. Raises HardwareError.
    """

    links: tuple[int, ...]
    size_bytes: float
    _: KW_ONLY
    kind: str = PARAMETERS
    weight: float = 1.0
    cap_bytes_per_s: float = math.inf
    priority: int = 0
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if len(set(self.links)) != len(self.links):
            raise HardwareError(f"a flow crosses a link twice ({self.links}): name each link once")
        if not (math.isfinite(self.size_bytes) and self.size_bytes >= 0):
            raise HardwareError(f"a flow has {self.size_bytes} bytes: write a number of at least 0")
        if not (math.isfinite(self.weight) and self.weight > 0 and self.cap_bytes_per_s > 0):
            raise HardwareError("a flow's weight and cap must be above 0 (no cap: leave it out)")
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0) or self.kind not in KINDS:
            raise HardwareError(f"a flow needs a latency of at least 0 and a kind of {', '.join(KINDS)}")


class Finished(NamedTuple):
    """A flow whose last byte arrived at ``at_s``."""

    flow: int
    at_s: float


def check_capacity(link: int, bytes_per_s: float) -> None:
    """Raise HardwareError for an invalid capacity; 0 is a link that has failed."""
    if not (math.isfinite(bytes_per_s) and (bytes_per_s == 0 or bytes_per_s >= LEAST_BYTES_PER_S)):
        raise HardwareError(
            f"link {link} has a rate of {bytes_per_s} bytes/s: write at least {LEAST_BYTES_PER_S:g}, "
            "or 0 for a link that has failed"
        )
