"""Power of a serving GPU: by its limit, its work, and how many requests it decodes.

Rough, within some 20 %: power was measured on H100s and A100s, and other GPUs are assumed alike, in shares of
their limits. Hosts, networks and cooling are not counted.
"""

from dataclasses import dataclass
from math import log2
from typing import Final

# (requests that decode at once, share of the power limit). Of an H100's 700 W, Llama-3.1-8B on vLLM: 300 W
# for one request, 600 W for 128 (ML.ENERGY Benchmark 3.0, as the power model of vLLM's semantic router cites
# it), 688 W for 511 (rows of that benchmark in the Green Token Index).
DECODE_SHARES: Final = ((1.0, 300 / 700), (128.0, 600 / 700), (511.0, 688 / 700))
# Prompts draw the full limit (Splitwise, ISCA 2024, section III; POLCA, ASPLOS 2024).
PROMPT_SHARE: Final = 1.0
SOURCE: Final = (
    "rough, 20 %: prompts at the power limit (Splitwise), decode at 43 to 98 % of it by batch (ML.ENERGY, on "
    "an H100), no hosts and no cooling"
)


@dataclass(frozen=True, slots=True)
class GpuPower:
    """``limit_w``: the most the card may draw. ``idle_w``: with a loaded model and no work."""

    limit_w: float
    idle_w: float


def decode_share(batch: float) -> float:
    """Share of the power limit while ``batch`` requests decode at once: linear over log2(batch)."""
    (low, first), *rest = DECODE_SHARES
    if batch <= low:
        return first
    for high, share in rest:
        if batch <= high:
            return first + (share - first) * log2(batch / low) / log2(high / low)
        low, first = high, share
    return first


def energy_j(power: GpuPower, prompt_s: float, decode_s: float, batch: float, idle_s: float) -> float:
    """Joules of GPU seconds spent on prompts, on decoding ``batch`` requests at once, and idle."""
    assert min(prompt_s, decode_s, idle_s) >= 0
    busy = PROMPT_SHARE * prompt_s + decode_share(batch) * decode_s
    return power.limit_w * busy + power.idle_w * idle_s
