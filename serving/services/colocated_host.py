"""What live pairs take from the door of instances that do both, and give to them (LiveHost)."""

from collections import deque
from collections.abc import Iterable, Mapping

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.progress import Progress
from serving.kv.pieces import Piece
from serving.live.colocated import LiveColocated
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request


def backlog_tokens(
    door: Iterable[Request], live: LiveColocated | None, fleet: Fleet, engines: Mapping[int, Engine]
) -> int:
    """Prompt tokens at the door, in batches of live instances and at instances, not computed yet."""
    tokens = sum([request.prompt_tokens for request in door])
    if live is not None:
        tokens += sum([request.prompt_tokens for request in live.requests])
    for replica in fleet.members:
        engine = engines[replica]
        begun = (*engine.waiting, *engine.prefilling.values())
        tokens += sum([progress.known_tokens - progress.computed for progress in begun])
    return tokens


class DoorHost:
    """The common queue of a colocated model, ``door``, its instances as partners.

    ``pass_tokens``: of a batch. ``live``: the live pairs whose host it is.
    """

    __slots__ = ("_door", "_engines", "_fleet", "_pass_tokens", "live")

    def __init__(
        self, fleet: Fleet, engines: Mapping[int, Engine], door: deque[Request], pass_tokens: int
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._door = door
        self._pass_tokens = pass_tokens
        self.live: LiveColocated | None = None

    @property
    def _live(self) -> LiveColocated:
        live = self.live
        assert live is not None
        return live

    @property
    def model(self) -> str:
        """Whose instances these are."""
        return self._fleet.model

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return backlog_tokens(self._door, self.live, self._fleet, self._engines)

    def head_arrival_ns(self) -> int | None:
        """When the first request at the door came."""
        return self._door[0].arrival_ns if self._door else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the door that the engine has memory for."""
        batch = self._live.batch_of(engine, self._door, self._pass_tokens)
        for _ in batch:
            self._door.popleft()
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """To the head of the door's queue."""
        self._door.extendleft(reversed(list(requests)))

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self._fleet.alive()

    def helpers(self) -> list[int]:
        """There are no others."""
        return []

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether an instance has room for these."""
        return self._live.holds(engine, requests)

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """They are counted where they will decode (``LiveColocated.count``)."""

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
        self._live.computed(engine, done, first_layers, actions)
