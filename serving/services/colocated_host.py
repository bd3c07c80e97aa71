"""What live pairs take from the common queue of instances that do both, and give to them (LiveHost)."""

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
    """Prompt tokens that wait for all, in batches of live instances and at instances, not computed yet."""
    tokens = sum([request.prompt_tokens for request in waiting])
    tokens += sum([request.prompt_tokens for request in batches])
    for replica in fleet.members:
        engine = engines[replica]
        begun = (*engine.waiting, *engine.prefilling.values())
        tokens += sum([progress.known_tokens - progress.computed for progress in begun])
    return tokens


class ColocatedHost:
    """The common queue of a colocated model, ``door``, its instances as partners.

    ``pass_tokens``: of a batch; ``most_requests``: that decode on one instance.
    """

    __slots__ = (
        "_door", "_engines", "_first_layers", "_fleet", "_most_requests", "_pass_tokens", "_places",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        door: deque[Request],
        pass_tokens: int,
        most_requests: int,
        places: DecodePlaces,
        first_layers: FirstLayers,
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._door = door
        self._pass_tokens = pass_tokens
        self._most_requests = most_requests
        self._places = places
        self._first_layers = first_layers

    @property
    def model(self) -> str:
        """Whose instances these are."""
        return self._fleet.model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet."""
        return backlog_tokens(self._door, batches, self._fleet, self._engines)

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue came."""
        return self._door[0].arrival_ns if self._door else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the queue that the engine has memory for: a pass on a new instance."""
        ledger, batch = engine.ledger, list[Request]()
        tokens, free = 0, ledger.free_blocks - ledger.watermark_blocks
        while self._door:
            request = self._door[0]
            tokens += request.prompt_tokens
            free -= ledger.blocks_for(request.prompt_tokens)
            full = len(batch) == self._most_requests or (batch and tokens > self._pass_tokens)
            if free < 0 or full:
                break
            batch.append(self._door.popleft())
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """To the head of the queue."""
        self._door.extendleft(reversed(list(requests)))

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self._fleet.alive()

    def helpers(self) -> list[int]:
        """There are no others."""
        return []

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether it computes no prompts, and has seats for the batch that it would end by itself.

        Those in its queue came later than its batches.
        """
        if engine.prefilling:
            return False
        own = None if pair is None or not pair.whole else pair.next_own()
        if own is None:
            return True
        decoding = len(engine.running) + len(engine.adopted) + len(engine.outgoing)
        return decoding + len(own.requests) <= self._most_requests

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether an instance that reports has seats and memory for these, as for prompts of its own."""
        ledger, wanted = engine.ledger, list(requests)
        if self._fleet.load(engine.id, "outstanding") + len(wanted) > self._most_requests:
            return False
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in wanted])
        return blocks <= ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks()

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """They are counted where they will decode (``DecodePlaces``)."""

    def dropped(self, engine: Engine) -> None:
        """Nothing was kept."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """A batch has all its layers: it decodes on this engine."""
        self._places.computed([progress.id for progress in done])
        self._first_layers.computed(engine, done, first_layers, actions)
