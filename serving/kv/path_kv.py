"""KV blocks of requests in stages: each replica of a path keeps the blocks of its own layers."""

from collections.abc import Mapping, Sequence

from serving.engine.engine import Engine


class PathKv:
    """Checks, reserves and frees blocks on the engines of paths."""

    __slots__ = ("_engines",)

    def __init__(self, engines: Mapping[int, Engine]) -> None:
        self._engines = engines

    def fits(self, tokens: int, path: Sequence[int]) -> bool:
        """Whether every replica of the path has blocks for this many tokens of a new request."""
        for replica in path:
            ledger = self._engines[replica].ledger
            if ledger.free_blocks - ledger.watermark_blocks < ledger.blocks_for(tokens):
                return False
        return True

    def keep(self, request: int, tokens: int, path: Sequence[int]) -> None:
        """Reserve blocks for this many tokens of the request on every replica of the path."""
        for replica in path:
            self._engines[replica].reserve(request, tokens)

    def free(self, request: int, path: Sequence[int]) -> None:
        """Free the request's blocks on every replica of the path."""
        for replica in path:
            self._engines[replica].release([request])
