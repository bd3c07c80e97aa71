"""What happens to the KV of preempted requests: dropped and recomputed, or kept in host memory."""

from typing import Final

PREEMPTIONS: Final = ("recompute", "swap")
RECOMPUTE: Final = PREEMPTIONS[0]
# GiB of host memory per GPU: --swap-space of vLLM 0.1.7, whose host blocks have the GPU blocks' size.
SWAP_SPACE_GIB: Final = 4.0
