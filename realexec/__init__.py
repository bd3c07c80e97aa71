"""Execution by real worker processes with real tensors, under the wall clock and the same controller."""

import os

# MKL reads this at its first call. Without it the order of a sum's additions, and so its last bits, depends
# on shapes and alignment, and on the kind of processor (seen with MKL 2024.2 on two AVX-512 machines).
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
