"""The prefill and decode instances of one model, as the dispatcher of a split system sees them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.handover import HandOvers
from serving.services.disaggregated.prefill_queue import PrefillQueue
from serving.vocabulary.request import Request


class Instances:
    """The instances of one model that take requests (implements ``SplitView``)."""

    __slots__ = (
        "_decode", "_engines", "_hand_overs", "_prefill", "_queue", "_requests", "_switching", "model",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        *,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        queue: PrefillQueue,
        prefill: Collection[int],
        decode: Collection[int],
        switching: Collection[int],
        hand_overs: HandOvers,
    ) -> None:
        """``prefill``, ``decode``, ``switching``: the service's own sets (not copies)."""
        self.model, self._engines, self._requests = model, engines, requests
        self._queue, self._hand_overs = queue, hand_overs
        self._prefill, self._decode, self._switching = prefill, decode, switching

    @property
    def prefill(self) -> Sequence[int]:
        """The prefill instances, ascending."""
        return sorted(self._prefill)

    @property
    def decode(self) -> Sequence[int]:
        """The decode instances, ascending."""
        return sorted(self._decode)

    @property
    def turning(self) -> Sequence[int]:
        """Prefill instances that will decode, ascending."""
        return sorted(self._switching)

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens that prefill instances still have to compute."""
        return self._queue.backlog_tokens

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens that an instance itself still has to compute."""
        return uncomputed_tokens(self._engines[replica])

    def decoding(self, replica: int) -> tuple[int, int]:
        """(requests, their prompt tokens) that decode there or are on their way."""
        engine = self._engines[replica]
        here = {*engine.running, *[one.id for one in (*engine.waiting, *engine.attached)]}
        here.update(self._hand_overs.batch_to(replica))
        here.difference_update(engine.ended)
        return len(here), sum([self._requests[request].prompt_tokens for request in here])

    def receives(self, replica: int) -> bool:
        """Whether KV is on its way there."""
        return self._hand_overs.receives(replica)

    def has_room(self, replica: int, request: Request) -> bool:
        """Whether a decode instance has memory and a seat for the whole request."""
        engine = self._engines[replica]
        need = self._hand_overs.need_tokens(request, engine.replica.room_tokens)
        return self._hand_overs.has_capacity(engine, need, 1)


def own_prompts(engine: Engine) -> Iterable[Progress]:
    """Prompts that a decode instance has not computed yet; not those it computes again."""
    for progress in (*engine.waiting, *engine.prefilling.values()):
        if not (progress.was_preempted or progress.moved):
            yield progress


def uncomputed_tokens(engine: Engine) -> int:
    """Tokens of a decode instance's own prompts that it has not computed yet."""
    return sum([progress.known_tokens - progress.computed for progress in own_prompts(engine)])
