"""Replicas that are there from the start and stay: parameters that some lack come when the world opens.

Where running requests migrate a round comes once per period.
"""

from collections.abc import Mapping, Sequence

from serving.elastic.replica_control import Handler
from serving.engine.engine import Engine
from serving.engine.progress import GONE
from serving.parameters.loads import Loads
from serving.services.rounds import Rounds
from serving.services.service import Service
from serving.vocabulary.actions import Action, Load
from serving.vocabulary.events import (
    Loaded,
    LoadStopped,
    LossNotice,
    LostHost,
    LostLink,
    LostSsd,
    Opened,
    Woke,
)


class FixedReplicas:
    """ReplicaControl without scaling. ``starts``: loads to ask for when the world opens.

    Replicas that these go to take requests at once and serve them when their parameters are there.
    """

    __slots__ = ("_engines", "_left", "_loads", "_rounds", "_services", "_starts", "scales")

    def __init__(
        self,
        starts: Sequence[Load],
        engines: Mapping[int, Engine],
        services: Mapping[str, Service],
        rounds: Rounds | None = None,
    ) -> None:
        self._starts = tuple(starts)
        self._engines = engines
        self._services = services
        self._rounds = rounds
        self._loads = Loads()
        self._left: set[int] = set()
        self.scales = False

    @property
    def has_rounds(self) -> bool:
        """Whether it is to be told that the world has opened, for rounds to begin."""
        return self._rounds is not None

    def handlers(self) -> Mapping[type, Handler]:
        """Events about parameters."""
        return {
            Opened: self._opened,
            Loaded: self._loaded,
            LoadStopped: self._load_stopped,
            Woke: self._woke,
            LossNotice: self._loss_notice,
            **dict.fromkeys((LostHost, LostSsd, LostLink), self._part_lost),
        }

    def _opened(self, now_ns: int, event: Opened, actions: list[Action]) -> None:
        for load in self._starts:
            self._loads.begin(load)
            actions.append(load)
        if self._rounds is not None:
            self._rounds.opened(actions)

    def _loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        endpoint = self._loads.loaded(event)
        if endpoint is not None and endpoint[0] == "replica":
            engine = self._engines[endpoint[1]]
            engine.ready(actions)
            self._services[engine.replica.model].started(engine, actions)

    def _load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        self._loads.ended_early(event)

    def _loss_notice(self, now_ns: int, event: LossNotice, actions: list[Action]) -> None:
        """A replica that is to be lost takes nothing new; what it has ends or migrates before that."""
        engine = self._engines.get(event.number) if event.what == "replica" else None
        if engine is not None and engine.state not in GONE and event.number not in self._left:
            self._left.add(event.number)
            self._services[engine.replica.model].leave(event.number, actions)

    def _part_lost(self, now_ns: int, event: LostHost | LostSsd | LostLink, actions: list[Action]) -> None:
        """Nothing follows: nothing is planned."""

    def _woke(self, now_ns: int, event: Woke, actions: list[Action]) -> None:
        assert self._rounds is not None, "nobody asked to be woken"
        self._rounds.woke(now_ns, actions)

    def arrived(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """Nothing follows."""

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """Nothing follows."""

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Nothing follows: the replicas that are left serve."""
