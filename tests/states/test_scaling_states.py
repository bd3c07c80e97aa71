"""Every cell of the table of models at looks is played: a model whose only instance was lost, and another."""

from typing import Any

import pytest

from serving.protocols.scaling import NoChangeBounds, ScaleDecision, ScalingView
from serving.vocabulary.actions import Load
from tests.states.scaling_states import CELLS
from tests.worlds.elastic_world import MS, Setting, Told

BOUND_TOKENS, BUSY = 10, 99


class Says:
    """A scaler that gives one model the answer it was told to, and wants nothing for the other."""

    def __init__(self) -> None:
        self.act = ""
        self.has_bounds = False
        self.asked = 0

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        self.asked += view.model == "m"
        if view.model != "m" or not self.act:
            return ()
        act: Any = self.act
        return (ScaleDecision(act=act, model="m", role="both", count=1, instances=(), reason="told to"),)

    def no_change_bounds(self, view: ScalingView) -> NoChangeBounds | None:
        return NoChangeBounds(BOUND_TOKENS, 1000, 1000) if self.has_bounds else None


class Case:
    """Replica 0 was the only one of model m, and is lost with its GPU; replica 1 of model o has the other."""

    def __init__(self, state: str) -> None:
        self.scaler = scaler = Says()
        models = {"m": 1, "o": 1}
        setting = Setting(
            models, hosts=1, gpus_per_host=2, start={"both": 1}, whims=lambda: scaler, copies="everywhere"
        )
        self.told = Told(setting)
        self.told.arrive(BUSY, model="o")
        self.told.lose(0)
        looks = {"not monitored": ("", False), "within bounds": ("", True), "starved": ("shortage", True)}
        if state in looks:
            self.look(*looks[state])
        assert self.state == state

    @property
    def state(self) -> str:
        elastic: Any = self.told.controller.elastic
        if "m" in elastic._shortage.starved:
            assert "m" not in elastic.looks.active
            return "starved"
        if "m" in elastic.looks.active:
            return "monitored"
        return "within bounds" if "m" in elastic.answers.no_change_bounds else "not monitored"

    def look(self, act: str, has_bounds: bool) -> list[Any]:
        self.scaler.act, self.scaler.has_bounds = act, has_bounds
        return self.told.woke(self.told.now_ns // (100 * MS) * 100 * MS + 100 * MS)

    def play(self, event: str) -> str:
        """Whether the scaler was asked, whether an instance comes, the state after it."""
        asked, actions = self.scaler.asked, list[Any]()
        self.scaler.act = ""
        if event.startswith("request"):
            self.told.arrive(1, prompt=BOUND_TOKENS - 4 if "within" in event else BOUND_TOKENS + 1, cap=4)
        elif event == "check: instance wanted, a GPU is free":
            self.told.ran(1)
            self.told.ran(1, BUSY)
            self.told.deployment.drains.drain(self.told.now_ns, 1, [])
            actions = self.look("load", True)
        else:
            actions = self.look("shortage" if "wanted, no GPU" in event else "", "no load" not in event)
        words = ["scaler asked"] * (self.scaler.asked > asked)
        words += ["load starts"] * any(isinstance(action, Load) for action in actions)
        return f"{', '.join(words)}: {self.state}" if words else self.state


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]
