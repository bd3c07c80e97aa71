"""Replicas that exist from the start and stay; missing parameters are loaded when the world opens.

If running requests migrate, a round takes place once per period.
"""

from collections.abc import Mapping, Sequence

from serving.elastic.replica_control import Handler
from serving.elastic.stall_detection import StallDetector
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
from serving.vocabulary.request import Request


class FixedReplicas:
    """ReplicaControl without scaling. ``starts``: loads to request when the world opens.

    The target replicas of these loads take requests at once and serve them once their parameters are loaded.
    """

    __slots__ = ("_engines", "_left", "_loads", "_rounds", "_services", "_starts", "scales", "touched")

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
        self.scales, self.touched = False, set[str]()

    @property
    def has_rounds(self) -> bool:
        """Whether the controller needs the ``Opened`` event, to start the rounds."""
        return self._rounds is not None

    def stall_rule(self) -> StallDetector:
        """A rule that knows of no pending changes."""
        return StallDetector()

    def handlers(self) -> Mapping[type, Handler]:
        """Handlers for events about parameters, losses and ticks."""
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
        """Stop new requests to a replica that will be lost; its requests end or migrate before that."""
        engine = self._engines.get(event.number) if event.what == "replica" else None
        if engine is not None and engine.state not in GONE and event.number not in self._left:
            self._left.add(event.number)
            self._services[engine.replica.model].leave(event.number, actions)

    def _part_lost(self, now_ns: int, event: LostHost | LostSsd | LostLink, actions: list[Action]) -> None:
        """Do nothing: no later load is planned."""

    def _woke(self, now_ns: int, event: Woke, actions: list[Action]) -> None:
        assert self._rounds is not None, "no service asked for a wake-up"
        self._rounds.woke(now_ns, actions)

    def arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        """Do nothing."""

    def ran(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """Do nothing."""

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Do nothing: the remaining replicas serve."""
