"""Decode instances that compute prompts themselves (TokenScale's convertible decoders, arXiv 2512.03416).

Such a prompt has its room reserved as if its KV had arrived, waits in the queue of the instance's engine, and
is computed there in chunks beside the requests that decode. It never moves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.handover import HandOvers
from serving.protocols.batch import Batcher
from serving.protocols.splitting import SupportsConvert, converted
from serving.services.disaggregated.prefill_queue import PrefillQueue
from serving.vocabulary.actions import Action, Assign
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True)
class ConvertParts:
    """``dispatcher``: decides; ``batcher_for``: makes a decode instance's batcher, for a model."""

    dispatcher: SupportsConvert
    batcher_for: Callable[[str], Batcher]


class Conversions:
    """The prompts of one model at its decode instances; implements ``SplitView``."""

    __slots__ = (
        "_batchers", "_decode", "_engines", "_hand_overs", "_parts", "_prefill", "_queue", "_used", "model",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        parts: ConvertParts | None,
        *,
        engines: Mapping[int, Engine],
        queue: PrefillQueue,
        prefill: Collection[int],
        decode: Collection[int],
        hand_overs: HandOvers,
    ) -> None:
        """``parts`` None: no prompt is computed at a decode instance. ``prefill``, ``decode``: not copies."""
        self.model, self._parts, self._engines = model, parts, engines
        self._queue, self._prefill, self._decode, self._hand_overs = queue, prefill, decode, hand_overs
        self._batchers: dict[int, Batcher] = {}  # of engines that decode now: the one with which they prefill
        self._used = set[int]()  # instances that have had such prompts

    @property
    def prefill(self) -> Sequence[int]:
        """The prefill instances, ascending."""
        return sorted(self._prefill)

    @property
    def decode(self) -> Sequence[int]:
        """The decode instances, ascending."""
        return sorted(self._decode)

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens that prefill instances still have to compute."""
        return self._queue.backlog_tokens

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens that a decode instance itself still has to compute."""
        return uncomputed_tokens(self._engines[replica])

    def has_room(self, replica: int, request: Request) -> bool:
        """Whether a decode instance has memory and a seat for the whole request."""
        engine = self._engines[replica]
        need = self._hand_overs.need_tokens(request, engine.replica.room_tokens)
        return self._hand_overs.has_capacity(engine, need, 1)

    @property
    def own_tokens(self) -> int:
        """Prompt tokens that all decode instances still have to compute."""
        return sum([uncomputed_tokens(self._engines[replica]) for replica in self._used])

    def take(self, request: Request, actions: list[Action]) -> bool:
        """Give an arriving prompt to a decode instance if the policy says so."""
        if self._parts is None or not self._decode:
            return False
        choice = converted(self._parts.dispatcher, request, self)
        if choice is None:
            return False
        replica, reason = choice
        self._used.add(replica)
        self._hand_overs.begin_at(self._engines[replica], request)
        actions.append(Assign(request.id, replica, reason))
        self._engines[replica].enqueue(request, actions)
        return True

    def decodes(self, engine: Engine) -> None:
        """An engine decodes from its next pass on: it computes prompts in chunks that the policy limits."""
        if self._parts is not None and engine.id not in self._batchers:
            self._batchers[engine.id] = engine.batcher
            engine.batcher = self._parts.batcher_for(self.model)

    def prefills(self, engine: Engine) -> None:
        """An engine computes prompts for others from its next pass on."""
        engine.batcher = self._batchers.pop(engine.id, engine.batcher)


def own_prompts(engine: Engine) -> Iterable[Progress]:
    """Prompts that a decode instance has not computed yet; not those it computes again."""
    for progress in (*engine.waiting, *engine.prefilling.values()):
        if not (progress.was_preempted or progress.moved):
            yield progress


def uncomputed_tokens(engine: Engine) -> int:
    """Tokens of a decode instance's own prompts that it has not computed yet."""
    return sum([progress.known_tokens - progress.computed for progress in own_prompts(engine)])
