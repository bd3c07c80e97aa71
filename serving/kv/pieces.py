"""Records KV that is split by layer over replicas, and reserves blocks of requests attached to no engine.

While an instance loads its parameters, it may compute the first k of a prompt's L layers. The other layers
run at the instance to which the request is attached, its home. Each replica keeps the KV of the layers that
it computed in its own blocks. If a request has no record, all its KV is at its home.

Outside the engine, blocks are reserved and released only in two places: here, for pieces and for batches
computed by layers (``serving.live``), and in ``serving.kv.moves``, for KV in transfer.
"""

from collections.abc import Collection, Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.vocabulary.fact import fact
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange


@fact
class Piece:
    """KV of some layers of a request, at a replica that is not its home."""

    replica: int
    layers: LayerRange


class Pieces:
    """The requests of one model whose KV is split; true if there are any."""

    __slots__ = ("_engines", "_kv_bytes", "_split")

    def __init__(self, engines: Mapping[int, Engine], kv_bytes: KvBytes) -> None:
        """``kv_bytes``: size of KV in all layers."""
        self._engines = engines
        self._kv_bytes = kv_bytes
        self._split: dict[int, tuple[int, tuple[Piece, ...]]] = {}  # request -> home, pieces

    def __len__(self) -> int:
        return len(self._split)

    # The record.

    def add(self, requests: Iterable[int], home: Engine, *pieces: Piece) -> None:
        """Record that the home has the KV of all layers of these requests except those in the pieces."""
        layers = len(home.replica.layers)
        for piece in pieces:
            inside = piece.layers.last <= layers and len(piece.layers) < layers
            assert piece.replica != home.id and inside, f"{piece} is not split from replica {home.id}"
        for request in requests:
            self._split[request] = home.id, pieces

    def of(self, request: int) -> tuple[Piece, ...]:
        """The pieces of a request; empty if all its KV is at its home."""
        record = self._split.get(request)
        return () if record is None else record[1]

    def has_one(self, request: int, replica: int) -> bool:
        """Whether a piece of this request is at that replica."""
        return any(piece.replica == replica for piece in self.of(request))

    def at(self, replica: int) -> list[int]:
        """Requests that have a piece at that replica, home by home."""
        return [request for group in self.by_home(replica).values() for request in group]

    def by_home(self, replica: int) -> dict[int, list[int]]:
        """Requests that have a piece at that replica, by their homes."""
        holders: dict[int, list[int]] = {}
        for request, (home, pieces) in self._split.items():
            if any(piece.replica == replica for piece in pieces):
                holders.setdefault(home, []).append(request)
        return holders

    def size_bytes(self, progress: Progress) -> list[tuple[int, int]]:
        """(replica, bytes of the request's KV there) of each piece, rounded down; the rest is at its home.

        Every layer counts alike, also where some keep a window or a state.
        """
        record = self._split.get(progress.id)
        if record is None:
            return []
        home, pieces = record
        whole_bytes = self._kv_bytes.of(progress.known_tokens)
        layers = len(self._engines[home].replica.layers)
        return [(piece.replica, whole_bytes * len(piece.layers) // layers) for piece in pieces]

    def whole_bytes(self, batch: Collection[Progress]) -> int:
        """Bytes of all KV of these requests, at any replica."""
        return self._kv_bytes.of(sum([progress.known_tokens for progress in batch]), len(batch))

    def join(self, requests: Iterable[int], target: int | None = None) -> list[Engine]:
        """Forget these requests' pieces and free their blocks, except those at the target.

        Returns the engines that have more memory now, in order of first appearance.
        """
        freed: dict[int, Engine] = {}
        for request in requests:
            _, pieces = self._split.pop(request, (-1, ()))
            for piece in pieces:
                if piece.replica != target:
                    engine = freed.setdefault(piece.replica, self._engines[piece.replica])
                    self.release(engine, (request,))
        return list(freed.values())

    # Blocks.

    def held_blocks(self, replica: int) -> int:
        """Blocks that pieces hold at a replica."""
        ledger = self._engines[replica].ledger
        return sum([ledger.held_blocks(request) for request in self.at(replica)])

    def reserve(self, engine: Engine, request: int, tokens: int) -> None:
        """Reserve blocks for a request that is not attached to this engine yet."""
        engine.reserve(request, tokens)

    def release(self, engine: Engine, requests: Iterable[int]) -> None:
        """Free the blocks of requests that are not attached to this engine, or no longer."""
        engine.release(requests)
