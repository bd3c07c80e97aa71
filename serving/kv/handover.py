"""Hands over KV from prefill to decode instances of one model: which requests go to which instance, and when.

A prefill instance sends its completed prompts as one batch at a time; a decode instance receives one batch at
a time. Two accounts are kept per target. ``DecodeCapacity`` admits: once its KV is sent, a request counts
with all tokens that it may have, and against ``max_num_seqs``. ``KvLedger`` counts blocks: those for the sent
KV are reserved at the target before the send (``Moves.reserve``), those for later tokens as it decodes. The
source frees its blocks when the KV has arrived (OSDI 2025's artefact does the same).

Each batch is a move (``serving.kv.moves``). Pieces of its KV at other instances (``serving.kv.pieces``) go to
the target too. A prefill instance that switched to decode first fetches the pieces of what it computed,
several at a time and besides a batch that is sent to it. An instance may send several pieces at a time.
Pieces at a decode instance count as room that it reserves. What happens to requests when instances are lost:
docs/contributing/STATES.md.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.limits import limit_decoding
from serving.engine.progress import Progress
from serving.kv.decode_capacity import DecodeCapacity, HandOverRules
from serving.kv.moves import Move, MovePhase, Moves
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.abort import CLIENT_LEFT
from serving.vocabulary.actions import Abort, Action
from serving.vocabulary.events import Sent
from serving.vocabulary.request import Request

__all__ = ["HandOverRules", "HandOvers"]

# On Python 3.11 every look-up through the class costs as much as the rest of a short method.
_ABORTED = MovePhase.ABORTED


# Where the computed prompts of a source decode, and why; None: they wait. It may add actions.
Placing = Callable[[Sequence[Request], list[Action]], tuple[int, str] | None]


class HandOvers:
    """The hand-overs of one model, and the room reserved on its decode instances."""

    __slots__ = (
        "_decode_capacity", "_engines", "_ready", "_requests", "_self_computed", "demand_tokens",
        "migrating_tokens", "moves", "placing",
    )  # fmt: skip

    def __init__(
        self,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        rules: HandOverRules,
        transfer_ids: TransferIds,
        *,
        block_tokens: int = 1,
        sequence_blocks: int = 0,
    ) -> None:
        self._engines = engines
        self._requests = requests
        self._ready: deque[int] = deque()  # sources with something to send, the longest waiting first
        self._decode_capacity = DecodeCapacity(rules, block_tokens, sequence_blocks)
        self.moves = Moves(engines, Pieces(engines, rules.kv_bytes), transfer_ids)
        # The sum of demands, and of the completed requests that no instance has room for yet.
        self.demand_tokens = 0
        self._self_computed = 0  # requests that decode instances compute themselves, with reserved room
        self.migrating_tokens = 0
        self.placing: Placing | None = None  # None: the decode instance of least demand

    @property
    def demands(self) -> dict[int, int]:
        """Tokens of reserved room, by decode instance."""
        return self._decode_capacity.demands

    @property
    def demand_requests(self) -> int:
        """Number of requests whose tokens are in ``demand_tokens``."""
        return len(self._decode_capacity.needs) + self._self_computed

    @property
    def reserved_requests(self) -> dict[int, int]:
        """Number of requests with reserved room, by decode instance."""
        return self._decode_capacity.reserved_requests

    @property
    def waiting(self) -> bool:
        """Whether completed requests wait for room."""
        return bool(self._ready)

    def need_tokens(self, request: Request, decode_capacity: int) -> int:
        """Room that a request takes at an instance of this capacity: ``DecodeCapacity.need_tokens``."""
        return self._decode_capacity.need_tokens(request, decode_capacity)

    def open(self, replica: int) -> None:
        """Let a decode instance take requests from now on."""
        engine = self._engines[replica]
        limit_decoding(engine, self._decode_capacity.max_num_seqs)
        self._decode_capacity.open(replica, engine.replica.room_tokens)
        if replica in self._ready:
            self._ready.remove(replica)
            self._mark_ready(replica)

    def close(self, replica: int) -> None:
        """Stop sending new requests to a decode instance; KV in transfer to it still arrives."""
        self._decode_capacity.close(replica)

    def completed(self, engine: Engine, earlier: int, actions: list[Action]) -> None:
        """A pass has completed prompts: all of ``engine.outgoing`` from position ``earlier`` on."""
        outgoing, requests, source, decode_capacity = (
            engine.outgoing,
            self._requests,
            engine.id,
            self._decode_capacity,
        )
        memory = engine.replica.room_tokens
        for position in range(earlier, len(outgoing)):
            request = requests[outgoing[position].id]
            self.migrating_tokens += request.prompt_tokens
            decode_capacity.needs[request.id] = need = decode_capacity.need_tokens(request, memory)
            self.demand_tokens += need
        if source not in self.moves.sending and source not in self._ready:
            self._mark_ready(source)
        if self._ready:
            self.match(actions)

    def match(self, actions: list[Action]) -> None:
        """Begin all possible hand-overs, in the order in which the sources became ready."""
        while self._ready:
            source = self._ready[0]
            if self._begin(self._engines[source], actions):
                self._ready.remove(source)  # an instance that has become a decode instance may be before it
            elif not (self.moves.pieces and self._begin_at_pieces(actions)):
                return

    def _begin(self, source: Engine, actions: list[Action]) -> bool:
        decode_capacity = self._decode_capacity
        if source.id in decode_capacity.capacities_tokens:
            self._keep_own(source, actions)
            return True
        if self.placing is not None:
            return self._begin_placed(source, self.placing, actions)
        least = decode_capacity.least()
        return least is not None and self._send(
            source, self.moves.unsent(source), least, "least demand", actions
        )

    def _begin_placed(self, source: Engine, placing: Placing, actions: list[Action]) -> bool:
        """Begin where a policy says, which may be the source itself."""
        unsent = self.moves.unsent(source)
        place = placing([self._requests[progress.id] for progress in unsent], actions)
        if place is None:
            return False
        target, reason = place
        if target == source.id:
            self._keep_own(source, actions)
            return True
        return self._send(source, unsent, (target, self._decode_capacity.demands[target]), reason, actions)

    def _begin_at_pieces(self, actions: list[Action]) -> bool:
        """No decode instance fits the first source: try those whose memory is full of pieces."""
        decode_capacity, pieces = self._decode_capacity, self.moves.pieces
        for number in self._ready:
            source, groups = self._engines[number], dict[int, list[Progress]]()
            for progress in self.moves.unsent(source):
                for piece in pieces.of(progress.id):
                    groups.setdefault(piece.replica, []).append(progress)
            for target, batch in groups.items():
                if target not in decode_capacity.capacities_tokens or target in decode_capacity.receiving:
                    continue
                least = target, decode_capacity.demands[target]
                if self._send(source, batch, least, "least demand", actions):
                    self._ready.remove(number)
                    return True
        return False

    def _send(
        self,
        source: Engine,
        waiting: Sequence[Progress],
        place: tuple[int, int],
        reason: str,
        actions: list[Action],
    ) -> bool:
        """Send as many of the waiting requests as fit to a target of some demand; False: none fits."""
        target, demand = place
        engine = self._engines[target]
        batch, demand = self._decode_capacity.fitting_batch(waiting, engine, demand, self.moves.pieces)
        if not batch:
            return False
        self._decode_capacity.begin_batch(target, demand, len(batch))
        self.moves.begin(source, engine, tuple(batch), reason, actions)
        return True

    def _keep_own(self, source: Engine, actions: list[Action]) -> None:
        """Let a new decode instance keep what it computed before, once the pieces elsewhere have arrived."""
        moves, needs = self.moves, self._decode_capacity.needs
        unsent = tuple(moves.unsent(source))
        here, groups = moves.by_sources(unsent)
        self._decode_capacity.change(source.id, sum([needs[progress.id] for progress in unsent]), len(unsent))
        freed = self._commit(moves.reserve(source, source, here))
        if here:
            source.join_batch(
                here, actions, self._decode_capacity.fits(source.id, source.replica.room_tokens)
            )
        for group in groups:
            moves.begin(source, source, group, "its last layers ran there", actions)
        _freed(freed, actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A transfer ended. Returns the source if all KV of the batch is at the target; else None.

        A batch whose transfer the world has stopped is sent again as soon as there is room for it.
        """
        move = self.moves.sent(event, actions)
        if move is None:
            return None
        if move.phase is _ABORTED:
            self._drop_room(move)
            self._send_again(move)
            self._engines[move.target].freed(actions)
            self.match(actions)
            return None
        source, target = self._engines[move.source], self._engines[move.target]
        freed = self._commit(move)
        target.join_batch(
            move.batch, actions, self._decode_capacity.fits(target.id, target.replica.room_tokens)
        )
        if source is not target:
            self._decode_capacity.end_batch(target.id)
            if self.moves.unsent(source):
                self._mark_ready(source.id)
        source.freed(actions)
        _freed(freed, actions)
        if self._ready:
            self.match(actions)
        return source.id

    def _commit(self, move: Move) -> list[Engine]:
        self.migrating_tokens -= sum([progress.known_tokens for progress in move.batch])
        return self.moves.commit(move)

    def has_capacity(self, engine: Engine, tokens: int, requests: int) -> bool:
        """Whether a decode instance has memory for this much more, within ``max_num_seqs``."""
        return self._decode_capacity.fits(engine.id, engine.replica.room_tokens, tokens, requests)

    def keep(self, replica: int, tokens: int, requests: int) -> None:
        """Reserve room at a decode instance for what it computes itself; negative: release room."""
        self.demand_tokens += tokens
        self._self_computed += requests
        self._decode_capacity.change(replica, tokens, requests)

    def begin_at(self, engine: Engine, request: Request) -> None:
        """Reserve room at a decode instance for a request whose prompt it computes itself."""
        decode_capacity = self._decode_capacity
        need = decode_capacity.need_tokens(request, engine.replica.room_tokens)
        decode_capacity.needs[request.id] = need
        self.demand_tokens += need
        decode_capacity.change(engine.id, need, 1)

    def head_need(self) -> int:
        """Room that the first completed request waiting for room takes; 0: none waits."""
        if not self._ready:
            return 0
        return self._decode_capacity.needs[self.moves.unsent(self._engines[self._ready[0]])[0].id]

    def need_of(self, request: int) -> int:
        """Room reserved for a request at a decode instance."""
        return self._decode_capacity.needs[request]

    def change(self, replica: int, tokens: int, requests: int) -> None:
        """Change a decode instance's room for a request that migrates to or from it; ``demand_tokens`` stays
        the same.
        """
        self._decode_capacity.change(replica, tokens, requests)

    def departed(self, replica: int, request: int) -> None:
        """A request has left a decode instance; ``match`` then sends requests that wait for room."""
        self.demand_tokens -= self._decode_capacity.departed(replica, request)

    def has_room(self, request: int) -> bool:
        """Whether room is wanted or reserved for a request, because its prompt is computed."""
        return request in self._decode_capacity.needs

    def drop(self, home: Engine, request: int, actions: list[Action]) -> bool:
        """Let a computed request go that waits for room; False: its KV is in transfer."""
        if any(request in move.ids for move in self.moves.all()):
            return False
        (tokens,) = [progress.known_tokens for progress in home.outgoing if progress.id == request]
        self._fail(home, (request,))
        self.demand_tokens -= self._decode_capacity.forget((request,))
        actions.append(Abort(request, home.id, tokens + 1, CLIENT_LEFT))
        _freed([home, *self.moves.pieces.join((request,))], actions)
        return True

    def receives(self, replica: int) -> bool:
        """Whether a batch is on its way to a decode instance, which takes no other meanwhile."""
        return replica in self._decode_capacity.receiving

    def batch_to(self, replica: int) -> list[int]:
        """Requests with KV in transfer to an instance; those that it keeps are also outgoing there."""
        if replica not in self._decode_capacity.receiving and not self.moves.staying:
            return []
        return self.moves.requests_to(replica)

    def lost(
        self, replica: int, unsent: Collection[int], staying: Collection[int], actions: list[Action]
    ) -> list[int]:
        """A closed instance is lost, with its ``unsent`` requests and those ``staying`` in its room.

        Call it before they are forgotten, and ``match`` afterwards. Returns the requests of other instances
        that fail, ascending: pieces of them were at the lost one. What was in transfer to it, or together
        with those requests, is sent again.
        """
        if replica in self._ready:
            self._ready.remove(replica)
        moves, pieces = self.moves, self.moves.pieces
        homes = pieces.by_home(replica)
        lost_requests = sorted([request for group in homes.values() for request in group])
        stopped = moves.with_part_in(replica)
        for move in stopped:
            moves.abort(move, f"replica {replica} was lost", actions)
            self._drop_room(move)
        for number in homes:
            self._fail(self._engines[number], set(lost_requests))
        self._decode_capacity.lost(replica)
        self.migrating_tokens -= sum([self._requests[request].prompt_tokens for request in unsent])
        self.demand_tokens -= self._decode_capacity.forget(staying)
        self.demand_tokens -= self._decode_capacity.forget(lost_requests)
        freed = [*pieces.join(unsent), *pieces.join(lost_requests)]
        for move in stopped:
            if move.source != replica:
                self._send_again(move)
        changed = dict.fromkeys(
            [*homes, *(move.target for move in stopped), *(progress.id for progress in freed)]
        )
        _freed([self._engines[number] for number in changed], actions)
        return lost_requests

    def _fail(self, home: Engine, failing: Collection[int]) -> None:
        """Remove requests that end while they wait for room, because pieces are lost or clients went away."""
        batch = [progress for progress in home.outgoing if progress.id in failing]
        home.detach(batch)
        self.migrating_tokens -= sum([progress.known_tokens for progress in batch])
        if home.id in self._ready and not self.moves.unsent(home):
            self._ready.remove(home.id)

    def _drop_room(self, move: Move) -> None:
        """Release the room reserved for the batch of an aborted move."""
        needs = self._decode_capacity.needs
        self._decode_capacity.change(
            move.target, -sum([needs[request] for request in move.ids]), -len(move.batch)
        )
        if not move.stays:
            self._decode_capacity.end_batch(move.target)

    def _send_again(self, move: Move) -> None:
        """Queue the source of an aborted move again if it has unsent requests."""
        source = move.source
        if source not in self._ready and self.moves.unsent(self._engines[source]):
            self._mark_ready(source)

    def _mark_ready(self, source: int) -> None:
        """Queue a source that has something to send; what a decode instance keeps goes first.

        It must not wait: its memory is full of this KV, so as the target of least demand it would block the
        others.
        """
        if source in self._decode_capacity.capacities_tokens:
            self._ready.appendleft(source)
        else:
            self._ready.append(source)


def _freed(engines: Iterable[Engine], actions: list[Action]) -> None:
    for engine in engines:
        engine.freed(actions)
