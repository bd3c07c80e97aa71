"""Workers that only write down what they are told, and a world around them: events in, messages out."""

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from realexec.wire.messages import FromWorker, ToWorker
from realexec.world.actions import World
from realexec.world.models import Models
from realexec.world.slots import Slots
from realexec.world.tracking import Tracker
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event
from serving.vocabulary.layers import Part
from serving.vocabulary.request import Request

LAYERS = 3


class NobodyRecords:
    """A recorder that keeps nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@dataclass
class ToldWorker:
    slot: int
    log: list[tuple[int, ToWorker]]
    process: Any = None
    beat_ns: int = 0

    def send(self, message: ToWorker) -> None:
        self.log.append((self.slot, message))

    def runs_since(self, since_ns: int) -> bool:
        return self.beat_ns > since_ns

    def cpu_ns(self) -> int:
        return 0


@dataclass
class ToldPool:
    """``log``: (slot, message) in the order of sending."""

    count: int
    log: list[tuple[int, ToWorker]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = [ToldWorker(slot, self.log) for slot in range(self.count)]
        self.inbox: queue.Queue[tuple[int, FromWorker]] = queue.Queue()


class ToldWorld:
    """A world of ``workers`` slots; replica r has all parameters in slot r for r < ``warm``.

    ``parts``: of replicas that are a stage.
    """

    def __init__(
        self,
        workers: int = 4,
        warm: int = 2,
        parts: dict[int, Part] | None = None,
        models: Models | None = None,
    ) -> None:
        self.pool = ToldPool(workers)
        self.tracker = Tracker(NobodyRecords(), warm)
        slots = Slots(self.pool, range(warm), parts)
        self.world = World(slots, self.tracker, models or Models(("tiny",), (LAYERS,)), range(warm))

    def arrive(self, number: int, prompt: tuple[int, ...] = (1, 2, 3), output: int = 5) -> None:
        request = Request(number, 0, len(prompt), 64, "tiny")
        self.tracker.arrive(request, prompt, output)

    def does(self, *actions: Action, now_ns: int = 0) -> list[tuple[int, ToWorker]]:
        """What is sent because of these."""
        before = len(self.pool.log)
        for action in actions:
            self.world.carry_out(action, now_ns)
        return self.pool.log[before:]

    def sent_since(self, before: int) -> Sequence[tuple[int, ToWorker]]:
        return self.pool.log[before:]

    def facts(self) -> list[Event]:
        """For the controller, since this was last asked."""
        found = list(self.world.facts)
        self.world.facts.clear()
        return found
