"""Every cell of the table of replicas that run layers of a language model while they load is played."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from serving.elastic.stage_control import StageControl
from serving.protocols.stages import StartReplicas
from serving.services.language.service import LanguagePipeline
from serving.vocabulary.actions import Action, Fail, Run
from serving.vocabulary.events import Arrived, Loaded, LoadStopped, Lost, Ran
from serving.vocabulary.request import Request
from tests.states.path_live_states import CELLS
from tests.worlds.language_world import LanguageCase, Scaling, controller_of
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.stage_scripts import Scripted
from tests.worlds.toy_rows import ToyRows

FLAT = ToyRows(40, 0, 0, 40, 0)
CASE = replace(
    LanguageCase([], ToyStages((FLAT,), 0, 0), (1,), (10_000,), 1),
    kv_layer_bytes=400,
    stage_layers=4,
    live=True,
)


class Played:
    """Replica 1, on GPU 4, of the only stage, in which replica 0 serves a request. Batches have one each."""

    def __init__(self) -> None:
        self.controller = controller_of(CASE, scaling=Scaling(lambda: Scripted({})))
        control, service = self.controller.elastic, self.controller.services["m"]
        assert isinstance(control, StageControl) and isinstance(service, LanguagePipeline)
        self.control, self.service = control, service
        self.requests = self.layers = 0
        self.actions: list[Action] = []
        self.request()

    def handle(self, event: Arrived | Loaded | LoadStopped | Lost | Ran) -> None:
        self.actions = self.controller.handle(0, event)

    def request(self) -> None:
        self.requests += 1
        self.handle(Arrived(Request(self.requests, 0, 4, 100, "m")))

    def start(self) -> None:
        wish = StartReplicas(0, 1, "more", (4,))
        self.control.replicas.start(0, self.service, self.service.stages[0], wish, self.actions)

    def layer(self) -> None:
        self.layers += 1
        self.handle(Loaded(0, 0, self.layers, False))

    def state(self) -> str:
        live, told = self.service.live_stages, self.control.replicas.states.get(1)
        assert live is not None
        if told is None:
            return "gone" if 1 in self.controller.engines else "none"
        if told != "loading":
            assert 1 not in live.layers
            return {"serving": "serves", "draining": "drains"}[told]
        assert live.layers[1] == min(self.layers, 3)
        passed = ", with a batch" if any(1 in one.path for one in self.service.batches.values()) else ""
        return f"{'some' if live.layers[1] else 'no'} layers{passed}"

    def wished(self) -> list[int]:
        assert self.service.moves is not None
        return sorted(self.service.moves.wished)


PLAYS: dict[str, Callable[[Played], None]] = {
    "load starts": Played.start,
    "a layer has loaded": Played.layer,
    "the last layer has loaded": lambda one: one.handle(Loaded(0, 0, 4, True)),
    "load stopped": lambda one: one.handle(LoadStopped(0, 0, one.layers, "its SSD failed")),
    "replica lost": lambda one: one.handle(Lost(1, "it failed")),
    "request arrives": Played.request,
}
WAYS = {
    "none": (),
    "no layers": ("load starts",),
    "some layers": ("load starts", "a layer has loaded"),
    "some layers, with a batch": ("load starts", "a layer has loaded", "request arrives"),
}


@pytest.mark.parametrize(("state", "event"), [cell for cell, becomes in CELLS.items() if becomes != "-"])
def test_every_state_answers_every_event(state: str, event: str) -> None:
    found, expected = Played(), CELLS[state, event]
    for before in WAYS[state]:
        PLAYS[before](found)
    assert found.state() == state and not found.service.queue and not found.wished()
    found.actions = []
    if expected == "refused":
        with pytest.raises((AssertionError, KeyError)):
            PLAYS[event](found)
        return
    PLAYS[event](found)
    becomes, _, more = expected.partition(": ")
    assert found.state() == becomes
    assert len(found.service.queue) == (more == "the request waits")
    assert found.wished() == ([1] if "should" in more else [])
    failed = [one.request for one in found.actions if isinstance(one, Fail)]
    assert failed == ([2] if "fail" in more else [])
    paths = [(one.path, one.spans) for one in found.actions if isinstance(one, Run)]
    assert paths == ([((1, 0), ((0, 1), (1, 4)))] if more == "the request starts there" else [])
    if "should" in more:
        assert (
            better(found)
            == {
                "its batch should run more layers there": ((1, 0), ((0, 2), (2, 4))),
                "its batch should run all layers there": ((1,), ()),
                "its batch should leave it": ((0,), ()),
            }[more]
        )


def better(found: Played) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """Where the batch that is to move would go."""
    path = found.service._paths.better(found.service.batches[1])
    return None if path is None else (path.replicas, path.spans)
