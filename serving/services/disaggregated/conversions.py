"""Decode instances that compute prompts themselves (TokenScale's convertible decoders, arXiv 2512.03416).

Such a prompt has its room reserved as if its KV had arrived, waits in the queue of the instance's engine, and
is computed there in chunks beside the requests that decode. It never moves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.engine.limits import use_batcher
from serving.kv.handover import HandOvers
from serving.protocols.batch import Batcher
from serving.protocols.splitting import SupportsConvert, converted
from serving.services.disaggregated.instances import Instances, uncomputed_tokens
from serving.vocabulary.actions import Action, Assign
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True)
class ConvertParts:
    """``dispatcher``: decides; ``batcher_for``: makes a decode instance's batcher, for a model."""

    dispatcher: SupportsConvert
    batcher_for: Callable[[str], Batcher]


class Conversions:
    """The prompts of one model at its decode instances. ``view``: what the policy sees."""

    __slots__ = ("_batchers", "_engines", "_hand_overs", "_parts", "_used", "_view")

    def __init__(
        self,
        parts: ConvertParts | None,
        view: Instances,
        engines: Mapping[int, Engine],
        hand_overs: HandOvers,
    ) -> None:
        """``parts`` None: decode instances compute no prompts."""
        self._parts, self._view, self._engines, self._hand_overs = parts, view, engines, hand_overs
        self._batchers: dict[int, Batcher] = {}  # of engines that decode now: the one with which they prefill
        self._used = set[int]()  # instances that have had such prompts

    @property
    def own_tokens(self) -> int:
        """Prompt tokens that all decode instances still have to compute."""
        return sum([uncomputed_tokens(self._engines[replica]) for replica in self._used])

    def take(self, request: Request, actions: list[Action]) -> bool:
        """Give an arriving prompt to a decode instance if the policy says so."""
        if self._parts is None:
            return False
        choice = converted(self._parts.dispatcher, request, self._view)
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
            chunked = self._parts.batcher_for(self._view.model)
            self._batchers[engine.id] = use_batcher(engine, chunked)

    def prefills(self, engine: Engine) -> None:
        """An engine computes prompts for others from its next pass on."""
        before = self._batchers.pop(engine.id, None)
        if before is not None:
            use_batcher(engine, before)
