"""A last hop that is faster than the one before it: while nobody else uses its links, it needs no flows.

Each chunk has passed it before the next one arrives, so what it has carried follows from when chunks arrived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

# Times that differ by less than this share of a chunk's are equal: far above rounding, far below 1 ns.
_MARGIN: Final = 1e-9
_FEWEST_CHUNKS: Final = 3  # of fewer a flow each is no more


class RelayState(NamedTuple):
    """How far a relay's hop is: whole chunks, bytes of the next one, and how long its latency still lasts.

    wait_s: None if the next chunk has not arrived at the hop's start.
    """

    chunks: int
    partial_bytes: float
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class Relay:
    """Hop number ``hop``, which no flow shares, forwards the first ``chunks`` chunks of hop ``before``.

    They are one flow on ``before``. When it ends, all but the last of them have passed ``hop``. rate,
    latency: of ``hop`` alone.
    """

    hop: int
    before: int
    chunks: int
    rate_bytes_per_s: float
    latency_s: float

    def state(self, sizes_bytes: Sequence[float], arrived_s: Sequence[float], now_s: float) -> RelayState:
        """How far the hop is now. sizes_bytes: of its chunks; arrived_s: when those came that did."""
        free_s = -inf  # when the chunk before has passed
        for chunk, (size_bytes, at_s) in enumerate(zip(sizes_bytes, arrived_s)):
            begins_s = free_s if free_s >= at_s else at_s + self.latency_s
            takes_s = size_bytes / self.rate_bytes_per_s
            if begins_s >= now_s - takes_s * _MARGIN:
                return RelayState(chunk, 0.0, max(0.0, begins_s - now_s))
            free_s = begins_s + takes_s
            if free_s > now_s:
                return RelayState(chunk, self.rate_bytes_per_s * (now_s - begins_s), 0.0)
        return RelayState(len(arrived_s), 0.0, None)


def relayed_chunks(
    sizes_bytes: Sequence[float], before_s_per_byte: float, s_per_byte: float, latency_s: float
) -> int:
    """How many chunks can be one flow on the hop before: when the last of them comes, the others have passed.

    before_s_per_byte, s_per_byte: of the hop before at its fastest and of this hop, per byte of a chunk. 0 if
    it is not worth it.
    """
    if len(sizes_bytes) < _FEWEST_CHUNKS:
        return 0
    coming = before_s_per_byte * (1 - _MARGIN)
    if max(sizes_bytes) * s_per_byte + latency_s < min(sizes_bytes) * coming:
        return len(sizes_bytes)
    behind_s, count = 0.0, 1  # how long the chunks before still take, at most, when a chunk arrives
    for number in range(1, len(sizes_bytes)):
        takes_s = latency_s + sizes_bytes[number - 1] * s_per_byte
        behind_s = max(0.0, behind_s + takes_s - sizes_bytes[number] * coming)
        if not behind_s:
            count = number + 1
    return count if count >= _FEWEST_CHUNKS else 0
