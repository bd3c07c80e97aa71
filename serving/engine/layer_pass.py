"""A pass over some layers of prompts that are not the engine's own: what live scaling runs on it.

It waits for the run in progress to end at its next boundary, goes before anything else, and may run on an
engine that is still loading. The engine's queue and running set know nothing of it.
"""

from serving.vocabulary.actions import Chunk


class LayerPass:
    """Layers [first, last) of whole prompts."""

    __slots__ = ("begun", "chunks", "layers", "reason")

    def __init__(self, chunks: tuple[Chunk, ...], layers: tuple[int, int], reason: str) -> None:
        self.chunks = chunks
        self.layers = layers
        self.reason = reason
        self.begun = False
