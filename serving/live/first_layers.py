"""KV of the first layers of live batches, for colocated instances: it is sent after the last layers ran.

If the first layers ran on the target, their KV is sent to the replica that ran the last ones. This is a move
whose batch stays (``serving.kv.moves``). Meanwhile the request is outgoing on the replica where it will
decode: its prompt is computed and its memory is kept. States: docs/contributing/STATES.md.
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
    """``moves``: transfers of first layers' KV. ``fleet``: counts each request where it will decode."""

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
        """Attach requests with all layers computed; they decode once all their KV is on the engine.

        The next pass admits them; layers that other requests need may run before it.
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
        """Attach a batch whose KV is complete on the engine; returns the engines that held pieces."""
        sources = self._moves.commit(move)
        self._engines[move.target].attach(move.batch)
        return sources

    def sent(self, event: Sent, actions: list[Action]) -> tuple[Engine, Engine] | None:
        """Returns (source, engine where the requests decode) once KV has arrived, else None.

        A transfer that the world has stopped is sent again.
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
        """Handle a lost replica; returns requests elsewhere that fail because their first layers are lost."""
        lost_requests = list[Request]()
        pieces = self._moves.pieces
        for move in self._moves.with_part_in(replica):
            self._moves.abort(move, f"replica {replica} was lost", actions)
            if move.target != replica:
                batch = [self._requests[request] for request in move.ids]
                self._engines[move.target].detach(move.batch)
                for request in batch:
                    self._fleet.departed(move.target, request)
                lost_requests += batch
            pieces.join(move.ids)
        engine = self._engines[replica]
        pieces.release(engine, engine.ledger.holders())
        return lost_requests

    @property
    def migrating_tokens(self) -> int:
        """Tokens of the requests whose first layers' KV is in transit."""
        return sum([progress.known_tokens for move in self._moves.all() for progress in move.batch])

    def at(self, replica: int) -> list[int]:
        """Requests whose first layers' KV is on this replica and being sent from it."""
        return self._moves.pieces.at(replica)
