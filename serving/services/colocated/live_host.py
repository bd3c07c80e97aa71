"""Live pairs' access to the common queue of instances that prefill and decode (implements LiveHost)."""

from collections import deque
from collections.abc import Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.progress import Progress
from serving.kv.pieces import Piece
from serving.live.decode_places import DecodePlaces
from serving.live.first_layers import FirstLayers
from serving.live.pairs import LivePair
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request


def backlog_tokens(
    waiting: Iterable[Request], batches: Iterable[Request], fleet: Fleet, engines: Mapping[int, Engine]
) -> int:
    """Prompt tokens not computed yet: in the common queue, in live instances' batches and at instances."""
    tokens = sum([request.prompt_tokens for request in waiting])
    tokens += sum([request.prompt_tokens for request in batches])
    for replica in fleet.members:
        engine = engines[replica]
        begun = (*engine.waiting, *engine.prefilling.values())
        tokens += sum([progress.known_tokens - progress.computed for progress in begun])
    return tokens


class ColocatedHost:
    """The common queue of a colocated model (``queue``), with its instances as partners.

    ``max_num_batched_tokens``: of a batch; ``max_num_seqs``: requests that decode on one instance.
    """

    __slots__ = (
        "_engines", "_first_layers", "_fleet", "_max_num_batched_tokens", "_most_requests", "_places",
        "_queue",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        queue: deque[Request],
        max_num_batched_tokens: int,
        max_num_seqs: int,
        places: DecodePlaces,
        first_layers: FirstLayers,
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._queue = queue
        self._max_num_batched_tokens = max_num_batched_tokens
        self._most_requests = max_num_seqs
        self._places = places
        self._first_layers = first_layers

    @property
    def model(self) -> str:
        """The model of these instances."""
        return self._fleet.model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet."""
        return backlog_tokens(self._queue, batches, self._fleet, self._engines)

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue arrived."""
        return self._queue[0].arrival_ns if self._queue else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the queue that the engine has memory for: one pass on a new instance."""
        ledger, batch = engine.ledger, list[Request]()
        tokens, free = 0, ledger.free_blocks - ledger.watermark_blocks
        while self._queue:
            request = self._queue[0]
            tokens += request.prompt_tokens
            free -= ledger.blocks_for(request.prompt_tokens)
            full = len(batch) == self._most_requests or (batch and tokens > self._max_num_batched_tokens)
            if free < 0 or full:
                break
            batch.append(self._queue.popleft())
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """Put the requests back at the head of the queue."""
        self._queue.extendleft(reversed(list(requests)))

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self._fleet.alive()

    def helpers(self) -> list[int]:
        """None: all instances are partners."""
        return []

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether the engine computes no prompts, and ``max_num_seqs`` lets it decode its pair's next batch.

        Requests in its own queue arrived after its batches.
        """
        if engine.prefilling:
            return False
        own = None if pair is None or not pair.fully_loaded else pair.next_own()
        if own is None:
            return True
        decoding = len(engine.running) + len(engine.attached) + len(engine.outgoing)
        return decoding + len(own.requests) <= self._most_requests

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether a reporting instance may take these as prompts, by memory and ``max_num_seqs``."""
        ledger, wanted = engine.ledger, list(requests)
        if self._fleet.load(engine.id, "outstanding") + len(wanted) > self._most_requests:
            return False
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in wanted])
        return blocks <= ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks()

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Do nothing: the requests are counted where they will decode (``DecodePlaces``)."""

    def dropped(self, engine: Engine) -> None:
        """Do nothing: no room was reserved."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """All layers of a batch are computed: it decodes on this engine."""
        self._places.computed([progress.id for progress in done])
        self._first_layers.computed(engine, done, first_layers, actions)
