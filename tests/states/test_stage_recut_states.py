"""Every cell of the table of cuts that come is played through the controller."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from serving.elastic.stage_control import StageControl
from serving.protocols.stages import CutAnew
from serving.services.language.service import LanguagePipeline
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Loaded, LoadStopped, Lost
from serving.vocabulary.layers import Part
from serving.vocabulary.request import Request
from tests.states.stage_recut_states import CELLS
from tests.worlds.language_world import LanguageCase, Scaling, controller_of
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.stage_scripts import Scripted
from tests.worlds.toy_rows import ToyRows

FLAT = ToyRows(40, 0, 0, 40, 0)
CASE = replace(
    LanguageCase([], ToyStages((FLAT, FLAT), 0, 0), (1, 1), (10_000,) * 2, 1),
    kv_layer_bytes=400,
    stage_layers=4,
    recut=True,
)
BEGINS = (0, 4, 6)


class Played:
    """Two stages of four layers, replicas 0 and 1. The new cut halves the second one."""

    def __init__(self, last: int = 1) -> None:
        """``last``: replicas of the new cut's last stage."""
        self.controller = controller_of(CASE, scaling=Scaling(lambda: Scripted({})))
        control, service = self.controller.elastic, self.controller.services["m"]
        assert isinstance(control, StageControl) and isinstance(service, LanguagePipeline)
        self.control, self.service, self.last = control, service, last
        self.actions: list[Action] = []

    @property
    def loads(self) -> list[int]:
        return sorted(self.control.replicas.loads.in_flight)

    def first_of(self, load: int) -> int:
        return self.control.replicas.loads.in_flight[load].part.first

    def replicas_of(self, first: int) -> list[int]:
        """Of the new stage that begins there."""
        part = Part("m", first, first + 2)
        engines = self.controller.engines
        return [one for one in self.control.replicas.states if engines[one].replica.part == part]

    def begin(self, begins: tuple[int, ...] = BEGINS, counts: tuple[int, ...] = ()) -> None:
        wish = CutAnew(begins, counts or (1, 1, self.last), "why")
        self.control._recut.begin(0, self.service, wish, self.actions)

    def begin_unfit(self) -> None:
        prototypes = self.service._setup.prototypes
        assert isinstance(prototypes, dict)
        del prototypes[Part("m", 4, 6)]
        self.begin()

    def begin_too_long(self) -> None:
        self.service.queue.append(Request(1, 0, 4 * 10_000, 1, "m"))
        self.begin()

    def loaded(self) -> None:
        load = self.loads[0]
        self.controller.handle(0, Loaded(load, 0, 2, True, self.first_of(load)))

    def ended(self) -> None:
        load = self.loads[-1]
        self.controller.handle(0, LoadStopped(load, 0, 1, "its SSD failed", self.first_of(load)))

    def lost_old(self) -> None:
        self.controller.handle(0, Lost(1, "it failed"))

    def lost(self) -> None:
        self.controller.handle(0, Lost(self.replicas_of(4)[0], "it failed"))

    def state(self) -> str:
        if not self.service.cuts.coming:
            return "none"
        states = self.control.replicas.states
        return "a stage loaded" if states[self.replicas_of(4)[0]] == "serving" else "coming"


PLAYS: dict[str, Callable[[Played], None]] = {
    "cut requested": Played.begin,
    "cut requested, a part does not fit": Played.begin_unfit,
    "cut requested, a request is too long": Played.begin_too_long,
    "cut requested, too few GPUs are free": lambda one: one.begin((0, 2, 4, 6), (2, 2, 2, 2)),
    "a new replica has loaded": Played.loaded,
    "a load stops, its stage has another replica": Played.ended,
    "a load stops, its stage has no other replica": Played.ended,
    "a new replica is lost": Played.lost,
    "a present replica is lost": Played.lost_old,
}


def in_state(state: str, event: str) -> Played:
    found = Played(2 if "has another" in event else 1)
    if state != "none":
        found.begin()
    if state == "a stage loaded":
        found.loaded()
    assert found.state() == state
    return found


@pytest.mark.parametrize(("state", "event"), [cell for cell, becomes in CELLS.items() if becomes != "-"])
def test_every_state_answers_every_event(state: str, event: str) -> None:
    found = in_state(state, event)
    changes, told = found.service.cut_changes, len(found.control.replicas.history)
    PLAYS[event](found)
    becomes, _, more = CELLS[state, event].partition(": ")
    assert found.state() == becomes
    history = found.control.replicas.history[told:]
    assert (changes.made, changes.refused) == ("made" in more, "given up" in more)
    shortages = [one.reason for one in history if one.act == "shortage"]
    assert any(one.startswith("not cut anew") for one in shortages) == ("refused" in more or "up" in more)
    new, there = [*found.replicas_of(4), *found.replicas_of(6)], found.control.replicas.states
    if "go" in more:
        gone = [1] if "made" in more else new
        assert all(there.get(one, "draining") == "draining" for one in gone)
    elif becomes != "none":
        assert {there[one] for one in new} <= {"loading", "serving"}
    layers = [stage.part.layers for stage in found.service.stages]
    assert layers == ([(0, 4), (4, 6), (6, 8)] if "made" in more else [(0, 4), (4, 8)])
