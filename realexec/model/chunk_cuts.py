"""How a prompt's chunk is computed: where its attention may end before the prompt does, and its rows."""

from typing import Final

# torch's CPU flash attention (2.13, FlashAttentionKernel.cpp) takes keys in blocks of 512 positions. It takes
# queries in blocks of 256 if there are at least 768, else in smaller ones. A prompt cut at a multiple of
# KEY_BLOCK, and not below FEWEST_CUT, is blocked as if it went on.
KEY_BLOCK: Final = 512
FEWEST_CUT: Final = 1024
# Products of fewer rows may take special kernels (measured with MKL 2024.2 on AVX-512: 1, 2 and 3 rows do).
SMALL_PRODUCT_ROWS: Final = 16
