"""KV of requests that are in stages: each replica of a path keeps the blocks of its own layers."""

from collections.abc import Mapping, Sequence

from serving.engine.engine import Engine


class PathKv:
    """Asks the engines of paths for blocks."""

    __slots__ = ("_engines",)

    def __init__(self, engines: Mapping[int, Engine]) -> None:
        self._engines = engines

    def fits(self, tokens: int, path: Sequence[int]) -> bool:
        """Whether every replica of the path has blocks for so many tokens of a new request."""
        for replica in path:
            ledger = self._engines[replica].ledger
            if ledger.free_blocks - ledger.watermark_blocks < ledger.blocks_for(tokens):
                return False
        return True

    def keep(self, request: int, tokens: int, path: Sequence[int]) -> None:
        """Blocks for so many tokens of the request, on every replica."""
        for replica in path:
            self._engines[replica].reserve(request, tokens)

    def free(self, request: int, path: Sequence[int]) -> None:
        """It needs them no more."""
        for replica in path:
            self._engines[replica].release([request])
