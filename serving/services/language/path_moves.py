"""Moves batches to another path while their requests decode, by moving their KV between replicas.

Like a request's migration (``serving.kv.migration``), a move has two copies. The first sends all existing KV
while the batch keeps running; the second, between two rounds, sends what was written meanwhile. Then the
requests are on the new path, and the old path frees their blocks. Layers that the same replica runs on both
paths are not sent. The two paths may cut the model differently. Before the end a move may be aborted; the
batch then continues on its old path.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from serving.engine.engine import Engine
from serving.kv.moves import Move, MovePhase, Moves
from serving.kv.path_kv import PathKv
from serving.services.language.path_batch import PathBatch
from serving.services.language.path_choice import Path, PathChoice
from serving.vocabulary.actions import Action, Span
from serving.vocabulary.events import Sent

_WHY = "a batch goes over to another path"


class PathMove:
    """The move of one batch to the new ``path``, whose replicas run ``spans`` of the layers.

    ``sent``: for each request, the number of tokens whose KV is sent or in transfer. ``waits``: the last copy
    is in transfer, and the batch is halted.
    """

    __slots__ = ("batch", "moves", "path", "sent", "spans", "waits")

    def __init__(self, batch: PathBatch, path: Path) -> None:
        self.batch, self.path, self.spans = batch, path.replicas, path.spans
        self.sent: dict[int, int] = {}
        self.moves: list[tuple[Move, int]] = []  # each with its layers that both ends have
        self.waits = False

    @property
    def is_sending(self) -> bool:
        """Whether a transfer is in progress."""
        return any(move.phase is MovePhase.SENDING for move, _ in self.moves)


class PathHost(Protocol):
    """The service that owns the batches."""

    batches: dict[int, PathBatch]

    def go_on(self, batch: PathBatch, path: Path, actions: list[Action]) -> None:
        """Continue a halted batch on this path."""


class PathMoves:
    """Moves of one model. ``wished``: batches that begin or continue a move when their round ends.

    ``joined``: number of moves after which a replica that loaded meanwhile, or is loading, runs more layers.
    """

    __slots__ = (
        "_engines", "_host", "_kv", "_layer_bytes", "_moves", "_paths", "aborted", "committed",
        "joined", "moved_bytes", "of", "wished",
    )  # fmt: skip

    def __init__(
        self,
        *,
        engines: Mapping[int, Engine],
        kv: PathKv,
        layer_bytes: int,
        moves: Moves,
        paths: PathChoice,
        host: PathHost,
    ) -> None:
        """``layer_bytes``: size of one token's KV in one layer."""
        self._engines, self._kv, self._moves, self._layer_bytes = engines, kv, moves, layer_bytes
        self._paths, self._host = paths, host
        self.of: dict[int, PathMove] = {}  # by batch
        self.wished: dict[int, PathBatch] = {}
        self.committed = self.aborted = self.joined = self.moved_bytes = 0

    def leave(self, replica: int, actions: list[Action]) -> None:
        """A replica leaves: its batches look for another path, and moves to it are aborted."""
        self._abort_to(replica, "it is to go", actions)
        self.wish(replica)

    def wish(self, replica: int) -> None:
        """Let batches that pass the replica look for another path; batches in a move do so after it."""
        for batch in self._host.batches.values():
            if replica in batch.path and batch.id not in self.of:
                self.wished[batch.id] = batch

    def round_ended(self, batch: PathBatch, actions: list[Action]) -> bool:
        """Begin a batch's move, or its last copy, between two rounds; returns whether the batch halts."""
        path_move = self.of.get(batch.id)
        if path_move is None:
            if self.wished.pop(batch.id, None) is not None and batch.size:
                path = self._paths.better(batch)
                if path is not None:
                    self.begin(batch, path, actions)
            return False
        if not batch.size:
            self.abort(path_move, "it is empty", actions)
        elif not path_move.is_sending:
            self.wished.pop(batch.id, None)
            path_move.waits = True
            self._copy(path_move, actions)
            if not path_move.is_sending:
                self._commit(path_move, actions)
            return True
        return False

    def sent(self, event: Sent, actions: list[Action]) -> None:
        """A transfer has ended; when no transfer of the move is left, the move continues."""
        move = self._moves.sent(event, actions)
        if move is None:
            return
        path_move = next(
            path_move for path_move in self.of.values() if move in [own for own, _ in path_move.moves]
        )
        if move.phase is MovePhase.ABORTED:
            path_move.moves = [(own, layers) for own, layers in path_move.moves if own is not move]
            self.abort(path_move, event.cause, actions)
        elif path_move.waits and not path_move.is_sending:
            self._commit(path_move, actions)
        elif not path_move.is_sending:
            self.wished[path_move.batch.id] = path_move.batch

    def _commit(self, path_move: PathMove, actions: list[Action]) -> None:
        """Complete a move: all KV is on the new path, and the old path frees its blocks."""
        del self.of[path_move.batch.id]
        for move, _ in path_move.moves:
            self._moves.commit(move)
        old = [replica for replica in path_move.batch.path if replica not in path_move.path]
        for request in path_move.batch.members():
            self._kv.free(request.id, old)
        self.committed += 1
        self.joined += bool(path_move.batch.spans)
        self._host.go_on(path_move.batch, Path(path_move.path, path_move.spans), actions)
        if path_move.batch.size and self._paths.better(path_move.batch) is not None:
            self.wished[path_move.batch.id] = (
                path_move.batch
            )  # more layers are loaded meanwhile, or a replica is leaving

    def lost(self, replica: int, actions: list[Action]) -> None:
        """A replica is lost: abort the moves of batches that pass it, and moves to it."""
        for path_move in [path_move for path_move in self.of.values() if replica in path_move.batch.path]:
            self.abort(path_move, "a replica of its path is lost", actions, goes_on=False)
        self._abort_to(replica, "a replica of its new path is lost", actions)
        for batch in [path for path in self.wished.values() if replica in path.path]:
            del self.wished[batch.id]

    def _abort_to(self, replica: int, reason: str, actions: list[Action]) -> None:
        for path_move in [
            path_move
            for path_move in self.of.values()
            if replica in path_move.path and replica not in path_move.batch.path
        ]:
            self.abort(path_move, reason, actions)

    def abort(self, path_move: PathMove, reason: str, actions: list[Action], goes_on: bool = True) -> None:
        """Abort a move: the batch stays on its path and continues there if it was halted."""
        del self.of[path_move.batch.id]
        self.wished.pop(path_move.batch.id, None)
        for move, _ in path_move.moves:
            self._moves.abort(move, reason, actions)
        new = [replica for replica in path_move.path if replica not in path_move.batch.path]
        for request in path_move.batch.members():
            self._kv.free(request.id, new)
        self.aborted += 1
        if path_move.waits and goes_on:
            self._host.go_on(path_move.batch, Path(path_move.batch.path, path_move.batch.spans), actions)

    def left(self, batch: PathBatch, request: int) -> None:
        """A request of a batch has ended: free its blocks on the new path."""
        if (path_move := self.of.get(batch.id)) is not None:
            path_move.sent.pop(request, None)
            self._kv.free(request, [replica for replica in path_move.path if replica not in batch.path])

    def held(self, replica: int) -> list[int]:
        """Requests in a move to this replica, for which it reserves blocks."""
        return [
            request.id
            for path_move in self.of.values()
            if replica in path_move.path and replica not in path_move.batch.path
            for request in path_move.batch.members()
        ]

    def begin(self, batch: PathBatch, path: Path, actions: list[Action]) -> bool:
        """Send all existing KV to the replicas of the new path; False: one of them has no room."""
        new = [replica for replica in path.replicas if replica not in batch.path]
        if not self._room(batch, new):
            return False
        path_move = self.of[batch.id] = PathMove(batch, path)
        for request in batch.members():
            self._kv.keep(request.id, request.prompt_tokens + request.max_new_tokens, new)
        legs = self._legs(batch.path, batch.spans)
        for target, (first, last) in self._legs(*path):
            for source, (begin, end) in legs:
                layers = min(last, end) - max(first, begin)
                if layers > 0 and source != target:
                    move = self._moves.reserve(self._engines[source], self._engines[target], ())
                    path_move.moves.append((move, layers))
        self._copy(path_move, actions)
        return True

    def _legs(self, path: Sequence[int], spans: Sequence[Span]) -> list[tuple[int, Span]]:
        """The replicas of a path with the layers that each runs."""
        whole = spans or [self._engines[replica].replica.part.layers for replica in path]
        return list(zip(path, whole, strict=True))

    def _room(self, batch: PathBatch, new: Sequence[int]) -> bool:
        """Whether the new replicas have room for all tokens of the requests."""
        for replica in new:
            ledger = self._engines[replica].ledger
            needs = [
                ledger.blocks_for(member.prompt_tokens + member.max_new_tokens) for member in batch.members()
            ]
            if ledger.free_blocks - ledger.watermark_blocks < sum(needs):
                return False
        return True

    def _copy(self, path_move: PathMove, actions: list[Action]) -> None:
        """Send the requests' KV that exists and is not sent yet."""
        tokens = path_move.batch.kv_tokens()
        count = sum([there - path_move.sent.get(request, 0) for request, there in tokens.items()])
        path_move.sent = tokens
        if not count:
            return
        for move, layers in path_move.moves:
            size_bytes = count * self._layer_bytes * layers
            self.moved_bytes += size_bytes
            self._moves.send(move, [(move.source, tuple(tokens), size_bytes)], _WHY, actions)
