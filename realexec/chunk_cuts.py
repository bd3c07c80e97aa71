"""Where the attention of a chunk may end before its prompt does."""

from typing import Final

# torch's CPU flash attention (2.13, FlashAttentionKernel.cpp) takes keys in blocks of 512 positions; queries
# in blocks of 256 when there are at least 768, else in smaller ones. Cut at a multiple of KEY_BLOCK, and not
# below FEWEST_CUT, a prompt is blocked as if it went on.
KEY_BLOCK: Final = 512
FEWEST_CUT: Final = 1024
