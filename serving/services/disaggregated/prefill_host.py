"""Live pairs' access to separate prefill and decode instances (implements ``LiveHost``)."""

from collections.abc import Collection, Iterable

from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.kv.handover import HandOvers
from serving.kv.pieces import Piece
from serving.live.pairs import LivePair
from serving.services.disaggregated.prefill_queue import PrefillQueue
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request

_FREE = (EngineState.IDLE, EngineState.LOADING)


class PrefillHost:
    """The queue of a disaggregated model; prefill instances are partners, decode instances are helpers."""

    __slots__ = ("_decode", "_hand_overs", "_kept", "_model", "_prefill", "_queue")

    def __init__(
        self,
        model: str,
        queue: PrefillQueue,
        prefill: Collection[int],
        decode: Collection[int],
        hand_overs: HandOvers,
    ) -> None:
        """``prefill``, ``decode``: the service's own sets of its instances (not copies)."""
        self._model = model
        self._queue = queue
        self._prefill = prefill
        self._decode = decode
        self._hand_overs = hand_overs
        self._kept: dict[int, tuple[int, int]] = {}  # decode instance -> room for the requests it has pulled

    @property
    def model(self) -> str:
        """The model of these instances."""
        return self._model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet; requests in batches are still part of the backlog."""
        return self._queue.backlog_tokens

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue arrived."""
        waiting = self._queue.requests
        return waiting[0].arrival_ns if waiting else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the queue that the engine has memory for."""
        return self._queue.next_batch(engine)

    def give_back(self, requests: Iterable[Request]) -> None:
        """Put the requests back at the head of the queue; they were never removed from the backlog."""
        self._queue.give_back(requests)

    def partners(self) -> list[int]:
        """The prefill instances."""
        return sorted(self._prefill)

    def helpers(self) -> list[int]:
        """The decode instances, those with the lowest demand first."""
        demands = self._hand_overs.demands
        return sorted(self._decode, key=lambda replica: (demands[replica], replica))

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether the engine runs nothing."""
        return engine.state in _FREE

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether it has free blocks for the prompts and, if it decodes, room for their outputs."""
        ledger, prompts = engine.ledger, list(requests)
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in prompts])
        if blocks > ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks():
            return False
        if engine.id not in self._decode or not self._hand_overs.reserved_requests[engine.id]:
            return True  # an empty instance never gets more room
        return self._hand_overs.has_capacity(engine, self._room_needed(engine, prompts), len(prompts))

    def _room_needed(self, engine: Engine, requests: Iterable[Request]) -> int:
        capacity_tokens, need_tokens = engine.replica.room_tokens, self._hand_overs.need_tokens
        return sum([need_tokens(request, capacity_tokens) for request in requests])

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Reserve room as if their KV arrived: nothing else is sent into it."""
        if engine.id in self._decode:
            pulled = list(requests)
            self._kept[engine.id] = needs = self._room_needed(engine, pulled), len(pulled)
            self._hand_overs.keep(engine.id, *needs)

    def kept(self, replica: int) -> tuple[int, int]:
        """Tokens and requests for which a decode instance reserves room, among those it has pulled."""
        return self._kept.get(replica, (0, 0))

    def dropped(self, engine: Engine) -> None:
        """Release the room: the requests need none, or are completed and reserve it themselves."""
        tokens, reserved_requests = self._kept.pop(engine.id, (0, 0))
        if reserved_requests:
            self._hand_overs.keep(engine.id, -tokens, -reserved_requests)

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """All layers of a batch are computed: hand over its KV."""
        self._queue.backlog_tokens -= tokens
        self.dropped(engine)
        earlier = len(engine.outgoing)
        engine.attach(done, outgoing=True)
        if first_layers is not None:
            self._hand_overs.moves.pieces.add([progress.id for progress in done], engine, first_layers)
        if done:
            self._hand_overs.completed(engine, earlier, actions)
