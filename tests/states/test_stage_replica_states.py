"""Every cell of the table of stage replicas is played; whose GPU memory and cores are taken."""

from collections.abc import Callable

import pytest

from serving.controller import Controller
from serving.elastic.stage_control import StageControl
from serving.protocols.stages import StartReplicas, StopReplicas
from serving.services.pipeline.service import Pipeline
from serving.vocabulary.actions import Action, StopLoad
from serving.vocabulary.events import Arrived, Loaded, LoadStopped, Lost, Ran
from serving.vocabulary.request import Request
from tests.states.stage_replica_states import CELLS
from tests.worlds.stage_scripts import Scripted
from tests.worlds.stage_world import MS, StageCase, controller_of

CASE = StageCase([0], [[MS]] * 2, ((0,), (1,)), elastic=True)


class Played:
    """Replica 2 of stage 0, on GPU 2. Replica 0 of that stage is at work from the start."""

    def __init__(self) -> None:
        self.controller: Controller = controller_of(CASE, scaler=Scripted({}))
        control, pipeline = self.controller.elastic, self.controller.services["m"]
        assert isinstance(control, StageControl) and isinstance(pipeline, Pipeline)
        self.replicas, self.pipeline = control.replicas, pipeline
        self.requests = 0
        self.actions: list[Action] = []
        self.request()
        assert set(self.stage.passes) == {0}

    @property
    def stage(self):  # type: ignore[no-untyped-def]
        return self.pipeline.stages[0]

    def request(self) -> None:
        one = Request(self.requests, 0, 1, 1, "m")
        self.requests += 1
        self.actions = self.controller.handle(0, Arrived(one))

    def start(self) -> None:
        wish = StartReplicas(0, 1, "more", (2,))
        self.replicas.start(0, self.pipeline, self.stage, wish, self.actions)

    def stop(self) -> None:
        self.actions = []
        self.replicas.stop(0, self.pipeline, StopReplicas(0, (2,), "fewer"), self.actions)

    def pass_ended(self) -> None:
        (one,) = self.stage.passes[2].batch
        self.controller.handle(0, Ran(2, 0, 1, (), False, 0))
        assert one.request.id in self.controller.requests

    @property
    def load(self) -> int:
        """The one under way; else the first, which has ended."""
        return max(self.replicas.loads.in_flight, default=0)

    def state(self) -> str:
        state = self.replicas.states.get(2, "none")
        if state == "draining":
            return state if 2 in self.stage.passes else "giving up"
        return ("running" if 2 in self.stage.passes else "idle") if state == "serving" else state


PLAYS: dict[str, Callable[[Played], object]] = {
    "start": Played.start,
    "loaded": lambda one: one.controller.handle(0, Loaded(one.load, 0, 2, True)),
    "load stopped": lambda one: one.controller.handle(0, LoadStopped(one.load, 0, 1, "its SSD failed")),
    "request": Played.request,
    "pass ended": Played.pass_ended,
    "stop": Played.stop,
    "lost": lambda one: one.controller.handle(0, Lost(2, "it failed")),
}
WAYS = {
    "none": ("start", "loaded", "stop"),  # it was there before
    "loading": ("start",),
    "giving up": ("start", "stop"),
    "idle": ("start", "loaded"),
    "running": ("start", "loaded", "request"),
    "draining": ("start", "loaded", "request", "stop"),
}


def in_state(state: str) -> Played:
    found = Played()
    for event in WAYS[state]:
        PLAYS[event](found)
    assert found.state() == state
    return found


@pytest.mark.parametrize(("state", "event"), [cell for cell, becomes in CELLS.items() if becomes != "-"])
def test_every_state_answers_every_event(state: str, event: str) -> None:
    found, expected = in_state(state), CELLS[state, event]
    waited, found.actions = found.stage.queued, []
    if expected == "refused":
        with pytest.raises((AssertionError, KeyError)):
            PLAYS[event](found)
        return
    PLAYS[event](found)
    becomes, _, more = expected.partition(", ")
    assert found.state() == becomes
    waits = (event == "request" and state != "idle") or "restarts" in more
    assert found.stage.queued == waited + waits
    assert any(type(one) is StopLoad for one in found.actions) == ("its load is stopped" in more)
    there = becomes != "none"
    assert found.pipeline.seats.used_bytes[2] == there * 2_000_000_000
    assert found.replicas.hosts.taken_cores[0] == 2 * (2 + there)
    assert (2 in found.stage.idle) == (becomes == "idle")
