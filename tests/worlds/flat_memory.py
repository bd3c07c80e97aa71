"""The least that is an arena: bytes, handed out one after another and never reused."""

from types import SimpleNamespace


class FlatMemory:
    """``MemoryError`` when it is full. Untouched bytes are 255: read as floats they are NaN, and show."""

    def __init__(self, size_bytes: int) -> None:
        self.buffer = memoryview(bytearray(b"\xff" * size_bytes))
        self.taken: list[SimpleNamespace] = []
        self._next = 0

    def take(self, size_bytes: int) -> SimpleNamespace:
        region = SimpleNamespace(offset=self._next, size_bytes=size_bytes)
        self._next += -(-size_bytes // 64) * 64
        if self._next > len(self.buffer):
            raise MemoryError(f"{size_bytes} bytes do not fit")
        self.taken.append(region)
        return region

    def give(self, region: SimpleNamespace) -> None:
        self.taken.remove(region)
