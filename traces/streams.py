"""Named random streams: one seed, one stream per consumer."""

from __future__ import annotations  # numpy.random is loaded only where something is drawn

import hashlib

import numpy as np

from traces.checks import whole_number

SEED_MAX = 2**64 - 1


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator of the consumer ``name`` under ``seed`` (0 to 2**64 - 1; otherwise TraceError).

    It depends on nothing but the two arguments, so that a new consumer shifts no other stream. The name
    enters through SHA-256 because Python's own string hash differs from one process to the next, and the bit
    generator is spelled out because numpy may change its default.
    """
    checked = whole_number("seed", seed, 0, SEED_MAX)
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, len(digest), 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(checked, spawn_key=words)))
