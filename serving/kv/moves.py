"""Moves: transfers the KV of a batch from its source, and from replicas with pieces of it, to a target.

A move reserves blocks at the target, sends the KV in one or more stages, and commits: the source and the
replicas with pieces free their blocks. If the request keeps decoding (``serving.kv.migration``), each stage
reserves blocks for what it sends. Before the commit the move may be aborted: transfers in progress are
stopped (``StopSend``), the target frees its blocks, and the KV stays where it was. A stage is a set of sends
that begin together; it ends when all of them have ended. If source and target are the same, the batch stays
and only its pieces at other replicas are sent. docs/contributing/STATES.md has the table of states and
events.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.actions import Action, Send, Span, StopSend
from serving.vocabulary.events import Sent


class MovePhase(IntEnum):
    """The phase of a move. ``RESERVED``: no transfer is in progress: before, between or after stages."""

    RESERVED = 0
    SENDING = 1
    COMMITTED = 2
    ABORTED = 3


# As in ``serving.engine.engine``: no look-ups through the class, and compiled none at all.
_RESERVED: Final[MovePhase] = MovePhase.RESERVED
_SENDING: Final[MovePhase] = MovePhase.SENDING
_COMMITTED: Final[MovePhase] = MovePhase.COMMITTED
_ABORTED: Final[MovePhase] = MovePhase.ABORTED


# What one replica sends in a stage: (source, requests, bytes of their KV).
StageSend = tuple[int, tuple[int, ...], int]


class Move:
    """The move of a batch. ``transfers``: in the current stage; ``missing``: how many have not ended."""

    __slots__ = ("batch", "missing", "phase", "source", "target", "transfers")

    def __init__(self, source: int, target: int, batch: tuple[Progress, ...]) -> None:
        self.source = source
        self.target = target
        self.batch = batch
        self.transfers: tuple[int, ...] = ()
        self.missing = 0
        self.phase: MovePhase = _RESERVED

    @property
    def stays(self) -> bool:
        """Whether the batch stays at its source, and only pieces of it are sent there."""
        return self.source == self.target

    @property
    def ids(self) -> list[int]:
        """The requests of the batch."""
        return [progress.id for progress in self.batch]


class Moves:
    """The moves of one model that are neither committed nor aborted."""

    __slots__ = ("_engines", "_moves", "_of_transfer", "pieces", "sending", "staying", "transfer_ids")

    def __init__(self, engines: Mapping[int, Engine], pieces: Pieces, transfer_ids: TransferIds) -> None:
        self._engines = engines
        self._moves: dict[Move, None] = {}  # in the order in which they began
        self._of_transfer: dict[int, Move] = {}  # by transfer in progress
        self.pieces = pieces
        self.transfer_ids = transfer_ids
        self.sending: set[int] = set()  # sources of batches that leave them
        self.staying: set[int] = set()  # requests that stay at their source while pieces are sent to it

    # The operations.

    def reserve(
        self, source: Engine, target: Engine, batch: tuple[Progress, ...], tokens: int | None = None
    ) -> Move:
        """Reserve blocks at the target for the batch, which waits at the source.

        tokens: number of tokens to reserve for each request, if the requests still decode at the source;
        ``reserve_more`` adds blocks.
        """
        if source is target:
            self.staying.update([progress.id for progress in batch])
        else:
            self.sending.add(source.id)
            self._keep(target, batch, tokens)
        move = Move(source.id, target.id, batch)
        self._moves[move] = None
        return move

    def reserve_more(self, move: Move, tokens: int) -> None:
        """Reserve blocks at the target for this many tokens of each request in all, before the next stage."""
        assert move.phase is _RESERVED, "blocks are reserved when nothing is on the wire"
        self._keep(self._engines[move.target], move.batch, tokens)

    def _keep(self, target: Engine, batch: tuple[Progress, ...], tokens: int | None) -> None:
        """Reserve blocks for ``tokens`` of each request; None: for all that it has."""
        reserve = target.reserve
        for progress in batch:
            reserve(progress.id, progress.known_tokens if tokens is None else tokens)

    def send(
        self,
        move: Move,
        stage: Sequence[StageSend],
        reason: str,
        actions: list[Action],
        *,
        positions: tuple[Span, ...] = (),
        control_ns: int = 0,
        slowdown_ppm: int = 0,
    ) -> None:
        """Begin a stage. positions, control_ns, slowdown_ppm: see ``Send``."""
        assert move.phase is _RESERVED and stage, "a stage begins when nothing is on the wire"
        model, begin, target = self._engines[move.source].replica.model, self.transfer_ids.begin, move.target
        move.phase, move.missing = _SENDING, len(stage)
        move.transfers = transfers = tuple([begin(model) for _ in stage])
        for transfer, (source, requests, size_bytes) in zip(transfers, stage):
            self._of_transfer[transfer] = move
            send = Send(
                transfer,
                "kv",
                requests=requests,
                source=source,
                target=target,
                size_bytes=size_bytes,
                reason=reason,
                positions=positions,
                control_ns=control_ns,
                slowdown_ppm=slowdown_ppm,
            )
            actions.append(send)

    def begin(
        self, source: Engine, target: Engine, batch: tuple[Progress, ...], reason: str, actions: list[Action]
    ) -> Move:
        """Reserve blocks and send all KV of a batch in one stage."""
        move = self.reserve(source, target, batch)
        self.send(move, self.whole_stage(source.id, target.id, batch), reason, actions)
        return move

    def sent(self, event: Sent, actions: list[Action]) -> Move | None:
        """A transfer has ended: return the move if its stage has ended, or if the world stopped the transfer.

        A stopped transfer aborts its move. None while other transfers of the stage are in progress, and for a
        transfer of a move that has ended before.
        """
        move = self._of_transfer.pop(event.transfer, None)
        if move is None:
            return None
        move.missing -= 1
        if event.cause:
            self.abort(move, event.cause, actions)
        elif move.missing:
            return None
        else:
            move.phase = _RESERVED
        return move

    def commit(self, move: Move) -> list[Engine]:
        """All KV is at the target: detach the batch from the source, and free the pieces at their replicas.

        Returns the engines where pieces were. The caller attaches the batch to the target.
        """
        assert move.phase is _RESERVED, "a move is committed once, when nothing is on the wire"
        self._end(move, _COMMITTED)
        self._engines[move.source].detach(move.batch, keeps_kv=move.stays)
        return self.pieces.join(move.ids, move.target) if self.pieces else []

    def abort(self, move: Move, reason: str, actions: list[Action]) -> None:
        """Stop the move: the batch waits at the source again, and the target frees its blocks.

        Pieces that are at the target stay there.
        """
        assert move.phase is _RESERVED or move.phase is _SENDING, "a move that is over cannot be aborted"
        for transfer in move.transfers:
            if self._of_transfer.pop(transfer, None) is not None:
                actions.append(StopSend(transfer, reason))
        self._end(move, _ABORTED)
        if not move.stays:
            target, has_one = self._engines[move.target], self.pieces.has_one
            target.release([request for request in move.ids if not has_one(request, target.id)])

    def _end(self, move: Move, phase: MovePhase) -> None:
        move.phase = phase
        del self._moves[move]
        if move.source == move.target:
            self.staying.difference_update(move.ids)
        else:
            self.sending.discard(move.source)  # one replica may send to several

    # What a stage sends.

    def whole_stage(self, source: int, target: int, batch: Sequence[Progress]) -> list[StageSend]:
        """The sends of all KV that is not at the target: the source's first, then pieces in order of the
        batch.

        Sends of zero bytes are left out.
        """
        pieces = self.pieces
        if not pieces and source != target:
            ids = tuple([progress.id for progress in batch])
            return [(source, ids, pieces.whole_bytes(batch))]
        bytes_at: dict[int, int] = {source: 0}
        requests_at: dict[int, list[int]] = {source: []}
        for progress in batch:
            piece_bytes = pieces.size_bytes(progress)
            own_bytes = pieces.whole_bytes((progress,)) - sum([size_bytes for _, size_bytes in piece_bytes])
            for replica, size_bytes in [(source, own_bytes), *piece_bytes]:
                if size_bytes and replica != target:
                    bytes_at[replica] = bytes_at.get(replica, 0) + size_bytes
                    requests_at.setdefault(replica, []).append(progress.id)
        return [(request, tuple(ids), bytes_at[request]) for request, ids in requests_at.items() if ids]

    def by_sources(
        self, batch: Iterable[Progress]
    ) -> tuple[tuple[Progress, ...], list[tuple[Progress, ...]]]:
        """Split a batch: requests that need no send, and the others, by the replicas of their pieces."""
        if not self.pieces:
            return tuple(batch), []
        here, groups = list[Progress](), dict[tuple[int, ...], list[Progress]]()
        for progress in batch:
            replicas = tuple([one for one, size_bytes in self.pieces.size_bytes(progress) if size_bytes])
            (groups.setdefault(replicas, []) if replicas else here).append(progress)
        return tuple(here), [tuple(group) for group in groups.values()]

    # Queries.

    def __contains__(self, transfer: int) -> bool:
        """Whether a transfer in progress belongs to one of these moves."""
        return transfer in self._of_transfer

    def ends(self, transfer: int) -> tuple[int, int]:
        """Source and target of the move of a transfer in progress."""
        move = self._of_transfer[transfer]
        return move.source, move.target

    def unsent(self, source: Engine) -> Sequence[Progress]:
        """Requests that wait at a source that sends nothing and are in no move."""
        if not self.staying:
            return source.outgoing
        return [progress for progress in source.outgoing if progress.id not in self.staying]

    def senders(self) -> set[int]:
        """The replicas that send KV now; a replica with a piece counts until the move has ended."""
        replicas = set(self.sending)
        if self.pieces:
            for move in self._moves:
                pieces = [piece for progress in move.batch for piece in self.pieces.of(progress.id)]
                replicas.update([piece.replica for piece in pieces if piece.replica != move.target])
        return replicas

    def all(self) -> list[Move]:
        """All moves, in the order in which they began."""
        return list(self._moves)

    def requests_to(self, target: int) -> list[int]:
        """Requests whose KV is in transfer to a replica."""
        return [request for move in self._moves if move.target == target for request in move.ids]

    def with_part_in(self, replica: int) -> list[Move]:
        """Moves that need a replica: as source, as target, or for a piece that is there."""
        has_one = self.pieces.has_one
        return [
            move
            for move in self._moves
            if replica in (move.source, move.target) or any(has_one(request, replica) for request in move.ids)
        ]
