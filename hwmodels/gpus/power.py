"""Power of a serving GPU: by its limit, and by how much of its memory bandwidth and tensor cores it uses.

Rough, within some 10 %: measured on H100s, and other GPUs are assumed alike, in shares of their limits.
Hosts, networks and cooling are not counted.
"""

from dataclasses import dataclass
from typing import Final

# Decode: idle power + MEMORY_SHARE of the limit at full memory bandwidth + TENSOR_SHARE of it at the rate
# of tensor cores, no more than MOST_SHARE. Least squares through five points of Llama-3.1-8B on one H100
# (700 W), vLLM 0.11.1: batches of 16, 32, 64, 96 and 128 drew 513, 560, 610, 644 and 669 W at 1,954, 3,391,
# 5,147, 6,260 and 7,037 output tokens/s; from 192 to 768 it was 685 to 691 W, the most (ML.ENERGY Benchmark
# 3.0, figures of "LLM Inference Energy: A Longitudinal Analysis", with the mean lengths of its text
# conversation, 634 and 717 tokens). What a step reads and computes: hwmodels/models/decode_work.py. Prompts
# are taken out.
MEMORY_SHARE: Final = 493 / 700
TENSOR_SHARE: Final = 1775 / 700
MOST_SHARE: Final = 690 / 700
# Prompts draw the full limit (Splitwise, ISCA 2024, section III; POLCA, ASPLOS 2024).
PROMPT_SHARE: Final = 1.0
SOURCE: Final = (
    "rough, 10 %: prompts at the power limit (Splitwise), decode by the memory bandwidth and tensor cores "
    "that it uses (ML.ENERGY, on an H100), no hosts and no cooling"
)


@dataclass(frozen=True, slots=True)
class GpuPower:
    """``limit_w``: the most the card may draw. ``idle_w``: with a loaded model and no work."""

    limit_w: float
    idle_w: float


def decode_w(power: GpuPower, memory_share: float, tensor_share: float) -> float:
    """Watts of a GPU that decodes at these shares of its peak memory bandwidth and tensor rate."""
    assert min(memory_share, tensor_share) >= 0
    work = MEMORY_SHARE * memory_share + TENSOR_SHARE * tensor_share
    return min(power.idle_w + power.limit_w * work, power.limit_w * MOST_SHARE)


def energy_j(power: GpuPower, prompt_s: float, decoding_s: float, decoding_w: float, idle_s: float) -> float:
    """Joules of GPU seconds spent on prompts, on decoding at ``decoding_w``, and idle."""
    assert min(prompt_s, decoding_s, idle_s) >= 0
    return power.limit_w * PROMPT_SHARE * prompt_s + decoding_w * decoding_s + power.idle_w * idle_s
