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
    """The move of one batch to the new ``path``, ``spans``. ``sent``: by request, tokens sent or in transfer.

    ``waits``: the last copy is in transfer, and the batch is halted.
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
        """``layer_bytes``: of a token's KV in one layer."""
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
        one = self.of.get(batch.id)
        if one is None:
            if self.wished.pop(batch.id, None) is not None and batch.size:
                path = self._paths.better(batch)
                if path is not None:
                    self.begin(batch, path, actions)
            return False
        if not batch.size:
            self.abort(one, "it is empty", actions)
        elif not one.is_sending:
            self.wished.pop(batch.id, None)
            one.waits = True
            self._copy(one, actions)
            if not one.is_sending:
                self._commit(one, actions)
            return True
        return False

    def sent(self, event: Sent, actions: list[Action]) -> None:
        """A transfer has ended; when no transfer of the move is left, the move continues."""
        move = self._moves.sent(event, actions)
        if move is None:
            return
        one = next(one for one in self.of.values() if move in [own for own, _ in one.moves])
        if move.phase is MovePhase.ABORTED:
            one.moves = [(own, layers) for own, layers in one.moves if own is not move]
            self.abort(one, event.cause, actions)
        elif one.waits and not one.is_sending:
            self._commit(one, actions)
        elif not one.is_sending:
            self.wished[one.batch.id] = one.batch

    def _commit(self, one: PathMove, actions: list[Action]) -> None:
        """Complete a move: all KV is on the new path, and the old path frees its blocks."""
        del self.of[one.batch.id]
        for move, _ in one.moves:
            self._moves.commit(move)
        old = [replica for replica in one.batch.path if replica not in one.path]
        for request in one.batch.members():
            self._kv.free(request.id, old)
        self.committed += 1
        self.joined += bool(one.batch.spans)
        self._host.go_on(one.batch, Path(one.path, one.spans), actions)
        if one.batch.size and self._paths.better(one.batch) is not None:
            self.wished[one.batch.id] = one.batch  # more layers are loaded meanwhile, or a replica is leaving

    def lost(self, replica: int, actions: list[Action]) -> None:
        """A replica is lost: abort the moves of batches that pass it, and moves to it."""
        for one in [one for one in self.of.values() if replica in one.batch.path]:
            self.abort(one, "a replica of its path is lost", actions, goes_on=False)
        self._abort_to(replica, "a replica of its new path is lost", actions)
        for batch in [one for one in self.wished.values() if replica in one.path]:
            del self.wished[batch.id]

    def _abort_to(self, replica: int, reason: str, actions: list[Action]) -> None:
        for one in [one for one in self.of.values() if replica in one.path and replica not in one.batch.path]:
            self.abort(one, reason, actions)

    def abort(self, one: PathMove, reason: str, actions: list[Action], goes_on: bool = True) -> None:
        """Abort a move: the batch stays on its path and continues there if it was halted."""
        del self.of[one.batch.id]
        self.wished.pop(one.batch.id, None)
        for move, _ in one.moves:
            self._moves.abort(move, reason, actions)
        new = [replica for replica in one.path if replica not in one.batch.path]
        for request in one.batch.members():
            self._kv.free(request.id, new)
        self.aborted += 1
        if one.waits and goes_on:
            self._host.go_on(one.batch, Path(one.batch.path, one.batch.spans), actions)

    def left(self, batch: PathBatch, request: int) -> None:
        """A request of a batch has ended: free its blocks on the new path."""
        if (one := self.of.get(batch.id)) is not None:
            one.sent.pop(request, None)
            self._kv.free(request, [replica for replica in one.path if replica not in batch.path])

    def held(self, replica: int) -> list[int]:
        """Requests in a move to this replica, for which it reserves blocks."""
        return [
            request.id
            for one in self.of.values()
            if replica in one.path and replica not in one.batch.path
            for request in one.batch.members()
        ]

    def begin(self, batch: PathBatch, path: Path, actions: list[Action]) -> bool:
        """Send all existing KV to the replicas of the new path; False: one of them has no room."""
        new = [one for one in path.replicas if one not in batch.path]
        if not self._room(batch, new):
            return False
        one = self.of[batch.id] = PathMove(batch, path)
        for request in batch.members():
            self._kv.keep(request.id, request.prompt_tokens + request.max_new_tokens, new)
        legs = self._legs(batch.path, batch.spans)
        for target, (first, last) in self._legs(*path):
            for source, (begin, end) in legs:
                layers = min(last, end) - max(first, begin)
                if layers > 0 and source != target:
                    move = self._moves.reserve(self._engines[source], self._engines[target], ())
                    one.moves.append((move, layers))
        self._copy(one, actions)
        return True

    def _legs(self, path: Sequence[int], spans: Sequence[Span]) -> list[tuple[int, Span]]:
        """The replicas of a path with the layers that each runs."""
        whole = spans or [self._engines[one].replica.part.layers for one in path]
        return list(zip(path, whole, strict=True))

    def _room(self, batch: PathBatch, new: Sequence[int]) -> bool:
        """Whether the new replicas have room for all tokens of the requests."""
        for replica in new:
            ledger = self._engines[replica].ledger
            needs = [ledger.blocks_for(one.prompt_tokens + one.max_new_tokens) for one in batch.members()]
            if ledger.free_blocks - ledger.watermark_blocks < sum(needs):
                return False
        return True

    def _copy(self, one: PathMove, actions: list[Action]) -> None:
        """Send the requests' KV that exists and is not sent yet."""
        tokens = one.batch.kv_tokens()
        count = sum([there - one.sent.get(request, 0) for request, there in tokens.items()])
        one.sent = tokens
        if not count:
            return
        for move, layers in one.moves:
            size_bytes = count * self._layer_bytes * layers
            self.moved_bytes += size_bytes
            self._moves.send(move, [(move.source, tuple(tokens), size_bytes)], _WHY, actions)
