"""What live pairs take from prefill and decode instances of their own, and give to them (LiveHost)."""

from collections.abc import Collection, Iterable

from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.kv.handover import HandOvers
from serving.kv.pieces import Piece
from serving.live.pairs import LivePair
from serving.services.prefill_queue import PrefillQueue
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request

_FREE = (EngineState.IDLE, EngineState.LOADING)


class PrefillHost:
    """The queue of a disaggregated model, its prefill instances as partners, its decode ones as helpers."""

    __slots__ = ("_decode", "_hand_overs", "_kept", "_model", "_prefill", "_queue")

    def __init__(
        self,
        model: str,
        queue: PrefillQueue,
        prefill: Collection[int],
        decode: Collection[int],
        hand_overs: HandOvers,
    ) -> None:
        """``prefill``, ``decode``: the service's own sets of its instances."""
        self._model = model
        self._queue = queue
        self._prefill = prefill
        self._decode = decode
        self._hand_overs = hand_overs
        self._kept: dict[int, tuple[int, int]] = {}  # decode instance -> room for what it has pulled

    @property
    def model(self) -> str:
        """Whose instances these are."""
        return self._model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet; those in batches never left the backlog."""
        return self._queue.backlog_tokens

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue came."""
        waiting = self._queue.requests
        return waiting[0].arrival_ns if waiting else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the queue that the engine has memory for."""
        return self._queue.next_batch(engine)

    def give_back(self, requests: Iterable[Request]) -> None:
        """To the head of the queue; they never left the backlog."""
        self._queue.give_back(requests)

    def partners(self) -> list[int]:
        """Prefill instances."""
        return sorted(self._prefill)

    def helpers(self) -> list[int]:
        """Decode instances, those with most room first."""
        demands = self._hand_overs.demands
        return sorted(self._decode, key=lambda one: (demands[one], one))

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether nothing runs there."""
        return engine.state in _FREE

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether there are free blocks for the prompts, and where it decodes room for their outputs."""
        ledger, prompts = engine.ledger, list(requests)
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in prompts])
        if blocks > ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks():
            return False
        if engine.id not in self._decode or not self._hand_overs.reserved_requests[engine.id]:
            return True  # an empty one never has more room
        return self._hand_overs.has_capacity(engine, self._needs(engine, prompts), len(prompts))

    def _needs(self, engine: Engine, requests: Iterable[Request]) -> int:
        capacity_tokens, need_tokens = engine.replica.longest_request_tokens, self._hand_overs.need_tokens
        return sum([need_tokens(request, capacity_tokens) for request in requests])

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """As if their KV came: nothing else is sent into the room that they will take."""
        if engine.id in self._decode:
            pulled = list(requests)
            self._kept[engine.id] = kept = self._needs(engine, pulled), len(pulled)
            self._hand_overs.keep(engine.id, *kept)

    def kept(self, replica: int) -> tuple[int, int]:
        """How many tokens and requests a decode instance keeps room for, of what it has pulled."""
        return self._kept.get(replica, (0, 0))

    def dropped(self, engine: Engine) -> None:
        """They need no room, or are completed and keep it themselves."""
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
        """A batch has all its layers: its KV is handed over."""
        self._queue.backlog_tokens -= tokens
        self.dropped(engine)
        earlier = len(engine.outgoing)
        engine.attach(done, outgoing=True)
        if first_layers is not None:
            self._hand_overs.moves.pieces.add([progress.id for progress in done], engine, first_layers)
        if done:
            self._hand_overs.completed(engine, earlier, actions)
