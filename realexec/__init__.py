"""The real world: worker processes with real tensors, driven by the wall clock and the same controller."""

import os

# MKL reads this at its first call. Without it the way a sum is added, and with it its last bits, depends on
# shapes and alignment, otherwise on each kind of processor (seen with MKL 2024.2 on two AVX-512 machines).
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
