"""Named random streams for policies: adding a consumer shifts no other stream."""

from hashlib import sha256


def seed_of(seed: int, name: str) -> int:
    """A 64-bit seed that depends on the run's seed and the stream's name alone."""
    return int.from_bytes(sha256(f"{seed}/{name}".encode()).digest()[:8], "big")
