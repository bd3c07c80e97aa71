"""KV of the first layers of live batches, for models whose instances do both: it follows the last layers.

If the first layers ran on the target, their KV is sent to where the last ones ran, a move whose batch
stays (``serving.kv.moves``): meanwhile the request is outgoing where it will decode, for its prompt is
computed and its memory is kept. What becomes of it: docs/STATES.md.
"""

from collections.abc import Mapping

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.progress import Progress
from serving.kv.moves import Move, MovePhase, Moves
from serving.kv.pieces import Piece
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Sent
from serving.vocabulary.request import Request


class FirstLayers:
    """``moves``: those of first layers' KV. ``fleet``: counts each request where it will decode."""

    __slots__ = ("_engines", "_fleet", "_moves", "_requests")

    def __init__(
        self, engines: Mapping[int, Engine], moves: Moves, fleet: Fleet, requests: Mapping[int, Request]
    ) -> None:
        self._engines = engines
        self._moves = moves
        self._fleet = fleet
        self._requests = requests

    def computed(
        self, engine: Engine, done: list[Progress], first_layers: Piece | None, actions: list[Action]
    ) -> None:
        """These have all their layers: they decode when all their KV is here.

        They are let in by the next pass, and layers that others wait for may go before it.
        """
        if first_layers is None:
            engine.attach(done)
            return
        self._moves.pieces.add([progress.id for progress in done], engine, first_layers)
        engine.attach(done, outgoing=True)
        here, groups = self._moves.by_sources(done)
        self._decode_here(self._moves.reserve(engine, engine, here))
        for group in groups:
            self._fetch(engine, group, actions)

    def _fetch(self, engine: Engine, batch: tuple[Progress, ...], actions: list[Action]) -> None:
        self._moves.begin(engine, engine, batch, "its last layers ran there", actions)

    def _decode_here(self, move: Move) -> list[Engine]:
        """All KV of a batch is where its last layers ran; returns where pieces of it lay."""
        sources = self._moves.commit(move)
        self._engines[move.target].attach(move.batch)
        return sources

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """KV has come: (its source, where the requests decode); None: it has not.

        What the world has stopped is sent again.
        """
        move = self._moves.sent(event, actions)
        if move is None:
            return None
        target = self._engines[move.target]
        if move.phase is MovePhase.ABORTED:
            self._fetch(target, move.batch, actions)
            return None
        (source,) = self._decode_here(move)
        return source, target

    def lost(self, replica: int, actions: list[Action]) -> list[Request]:
        """A replica is gone; returns requests elsewhere that fail, for their first layers are lost."""
        gone = list[Request]()
        pieces = self._moves.pieces
        for move in self._moves.with_part_in(replica):
            self._moves.abort(move, f"replica {replica} was lost", actions)
            if move.target != replica:
                batch = [self._requests[request] for request in move.ids]
                self._engines[move.target].detach(move.batch)
                for request in batch:
                    self._fleet.departed(move.target, request)
                gone += batch
            pieces.join(move.ids)
        engine = self._engines[replica]
        pieces.release(engine, engine.ledger.holders())
        return gone

    @property
    def migrating_tokens(self) -> int:
        """Of the requests whose first layers' KV is on its way."""
        return sum([one.known_tokens for move in self._moves.all() for one in move.batch])

    def at(self, replica: int) -> list[int]:
        """Requests whose first layers' KV is at a replica and is on its way from there."""
        return self._moves.pieces.at(replica)
