"""Runs of real workers under controllers that do what a test says: who is told what, and how requests end."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from realexec.driver.driver import WorkerFleet, execute
from realexec.world.report import RunReport
from serving.vocabulary.actions import Action, AllocateGpus, Assign, Fail, Load, Reject, Run, Send, Wake
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Opened, Ran, Sent, Woke
from serving.vocabulary.request import Request
from tests.worlds.processes import REAL, patience_s
from tests.worlds.real_runs import TINY
from tests.worlds.real_workers import own_workers

LAYERS = TINY["num_hidden_layers"]


class Records:
    """How each request ended."""

    def __init__(self) -> None:
        self.ended: dict[int, str] = {}

    def finished(self, request: Request, *_: object) -> None:
        self.ended[request.id] = "finished"

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        self.ended[request.id] = f"refused: {reason}"

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.ended[request.id] = f"failed: {reason}"

    def gaps(self, *_: object) -> None:
        pass

    def busy(self, *_: object) -> None:
        pass


@dataclass
class Scripted:
    """Has all events, and when each was told; ends or stops a worker once (``how`` 0: nothing is done)."""

    step_counts: ClassVar[None] = None
    victim: int
    how: int
    events: list[Event] = field(default_factory=list)
    told_ns: list[int] = field(default_factory=list)
    gone: bool = False

    def note(self, now_ns: int, event: Event) -> None:
        self.events.append(event)
        self.told_ns.append(now_ns)

    def end_the_victim(self) -> None:
        if not self.gone:
            self.gone = True
            os.kill(own_workers()[self.victim], self.how)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Chain(Scripted):
    """Loads 0 -> 1 -> 2, and the victim goes when replica 2 has its first layer; then it serves a request."""

    ended: set[int] = field(default_factory=set)

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        self.note(now_ns, event)
        if isinstance(event, Opened):
            return [*map(self.place, (1, 2)), self.load(0, 0, 1), self.load(1, 1, 2)]
        if isinstance(event, Loaded | LoadStopped):
            if isinstance(event, LoadStopped) or event.fully_loaded:
                self.ended.add(event.load)
            if event.load == 1 and event.layers == 1:
                self.end_the_victim()
        if self.ended == {0, 1} and self.of(Arrived) and not isinstance(event, Ran):
            self.ended.clear()
            return self.serve()
        return []

    def place(self, replica: int) -> Action:
        return AllocateGpus(replica, "tiny", (replica,), "both", False, "grow", (0, LAYERS))

    def load(self, number: int, source: int, target: int) -> Action:
        ends = (("replica", source),), (("replica", target),)
        return Load(number, "tiny", *ends, (), True, False, "grow", False, (0, LAYERS))

    def serve(self) -> Sequence[Action]:
        if self.victim == 0:
            return [Reject(0, "nobody has the whole model")]
        replica = 1 if self.victim == 2 else 0
        return [Assign(0, replica, "whole"), Run(replica, 0, ((0, 0, 20),), True, 100, True, "serve")]


def run(controller: Scripted, workers: int, fleet: WorkerFleet) -> tuple[RunReport, Records]:
    records = Records()
    requests = [(Request(0, 0, 20, 64, "tiny"), 5)]
    report = execute(
        controller,
        requests,
        workers=workers,
        model=TINY,
        seed=5,
        batch_size=4,
        recorder=records,
        start_timeout_s=patience_s(REAL),
        fleet=fleet,
    )
    assert own_workers() == {}
    return report, records


@dataclass
class Move(Scripted):
    """KV goes from 0 to 1, and the victim goes while it is on its way."""

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        self.note(now_ns, event)
        match event:
            case Arrived():
                prefill = Run(0, 0, ((0, 0, 20),), True, 1, True, "prefill", hand_over=True)
                return [Assign(0, 0, "first"), prefill]
            case Ran():
                return [Send(0, "kv", (0,), 0, 1, 1000, "there"), Wake(now_ns + 100_000_000, "half way")]
            case Woke():
                self.end_the_victim()
            case Sent():
                return [Fail(0, "its KV did not come" if event.cause else "it came")]
        return []
