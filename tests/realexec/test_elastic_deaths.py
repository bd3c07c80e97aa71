"""Workers that go while parameters or KV are on their way: nothing waits for ever, and others go on."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.driver import Fleet, execute
from realexec.report import RunReport
from serving.vocabulary.actions import Action, AllocateGpus, Assign, Fail, Load, Reject, Run, Send, Wake
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Lost, Opened, Ran, Sent, Woke
from serving.vocabulary.request import Request
from tests.worlds.processes import REAL, patience_s
from tests.worlds.real_runs import TINY
from tests.worlds.real_workers import own_workers

pytestmark = pytest.mark.real

LAYERS = TINY["num_hidden_layers"]
KILLED = "the worker process was ended by SIGKILL"
STOPPED = "nothing was heard of the worker process for 4 s: it is stopped (SIGSTOP or a debugger)"
# So that a layer takes a second, and a death comes in the middle of something, however busy the machine.
SLOW = {"nic": 2e5}


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
    """Has all events; ends or stops a worker once."""

    victim: int
    how: signal.Signals
    events: list[Event] = field(default_factory=list)
    gone: bool = False

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
        self.events.append(event)
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


def run(controller: Scripted, workers: int, fleet: Fleet) -> tuple[RunReport, Records]:
    records = Records()
    requests = [(Request(0, 0, 20, 64, "tiny"), 5)]
    report = execute(
        controller, requests, workers, TINY, 5, 4, records, start_timeout_s=patience_s(REAL), fleet=fleet
    )
    assert own_workers() == {}
    return report, records


@pytest.mark.parametrize(
    ("victim", "how", "cause", "transport"),
    [
        (0, signal.SIGKILL, KILLED, "shared_memory"),
        (1, signal.SIGKILL, KILLED, "tcp"),
        (2, signal.SIGKILL, KILLED, "tcp"),
        (2, signal.SIGSTOP, STOPPED, "shared_memory"),
    ],
    ids=["source", "middle", "target", "target stopped"],
)
def test_a_chain_that_loses_a_worker(victim: int, how: signal.Signals, cause: str, transport: str) -> None:
    chain = Chain(victim, how)
    report, records = run(chain, 3, Fleet(replicas=(0,), opens=True, rates=SLOW, transport=transport))
    assert report.lost == ((victim, cause),) and chain.of(Lost) == [Lost(victim, cause)]
    stopped = {event.load: event for event in chain.of(LoadStopped)}
    assert set(stopped) == ({1} if victim == 2 else {0, 1})
    for event in stopped.values():
        assert event.cause.endswith(cause), "the driver's word goes before that of who read from it"
        told = [one.layers for one in chain.of(Loaded) if one.load == event.load]
        assert event.layers == max(told), "what is whole stays whole"
    whole = [event.load for event in chain.of(Loaded) if event.fully_loaded]
    assert whole == ([0] if victim == 2 else [])
    assert records.ended == {0: "refused: nobody has the whole model" if victim == 0 else "finished"}


@dataclass
class Move(Scripted):
    """KV goes from 0 to 1, and the victim goes while it is on its way."""

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        self.events.append(event)
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


@pytest.mark.parametrize("victim", [0, 1], ids=["source", "target"])
def test_kv_on_its_way_ends_with_either_worker(victim: int) -> None:
    move = Move(victim, signal.SIGKILL)
    slow = Fleet(opens=True, rates={"nic": 3e3})  # 20 positions of 3 layers: 15 KB
    report, records = run(move, 2, slow)
    (sent,) = move.of(Sent)
    assert (sent.cause, sent.moved_bytes) == (KILLED, 0)
    assert report.lost == ((victim, KILLED),)
    assert records.ended == {0: "failed: its KV did not come"}
