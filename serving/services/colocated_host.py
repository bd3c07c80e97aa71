"""What live pairs take from the door of instances that do both, and give to them (LiveHost)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request

if TYPE_CHECKING:
    from serving.live.colocated import LiveColocated
    from serving.services.colocated import Colocated


class DoorHost:
    """The common queue of a colocated model, its instances as partners. ``pass_tokens``: of a batch."""

    __slots__ = ("_pass_tokens", "_service")

    def __init__(self, service: Colocated, pass_tokens: int) -> None:
        self._service = service
        self._pass_tokens = pass_tokens

    @property
    def _live(self) -> LiveColocated:
        live = self._service.live
        assert live is not None
        return live

    @property
    def model(self) -> str:
        """Whose instances these are."""
        return self._service.model

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return self._service.backlog_tokens

    def head_arrival_ns(self) -> int | None:
        """When the first request at the door came."""
        door = self._service.door
        return door[0].arrival_ns if door else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the door that the engine has memory for."""
        door = self._service.door
        batch = self._live.batch_of(engine, door, self._pass_tokens)
        for _ in batch:
            door.popleft()
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """To the head of the door's queue."""
        self._service.door.extendleft(reversed(list(requests)))

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self._service.partners()

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

    def computed(self, engine: Engine, done: list[Progress], tokens: int, actions: list[Action]) -> None:
        """A batch has all its layers: it decodes on this engine."""
        self._live.computed(engine, done, actions)
