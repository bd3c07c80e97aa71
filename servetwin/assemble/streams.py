"""Named random streams for policies: adding a consumer shifts no other stream."""

from hashlib import sha256


def seed_of(seed: int, name: str) -> int:
    """Return a 64-bit seed that depends only on the run's seed and the stream's name."""
    return int.from_bytes(sha256(f"{seed}/{name}".encode()).digest()[:8], "big")
