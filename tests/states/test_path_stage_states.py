"""Every cell of the table of a language model's stages is played."""

from collections.abc import Callable

import pytest

from policies.dispatch import LeastOutstanding
from serving.services.language.path_stages import PathStages
from serving.services.stages.stage import Stage
from serving.vocabulary.layers import Part
from tests.states.path_stage_states import CELLS


def parts_of(*begins: int) -> list[Part]:
    ends = (*begins[1:], 8)
    return [Part("m", first, last) for first, last in zip(begins, ends, strict=True)]


THERE = Part("m", 4, 8)
WITH, WITHOUT = parts_of(0, 2, 4), parts_of(0, 3)


class Played:
    """The stage is layers 4 to 7. ``left``: those whose replicas go, of the last event."""

    def __init__(self, begins: tuple[int, ...]) -> None:
        self.stages = PathStages(parts_of(*begins), [], {}, LeastOutstanding())
        for stage in self.stages.now:
            stage.counts.arrived(7)
        self.left: list[Stage] = []

    def come(self, parts: list[Part]) -> None:
        self.stages.propose(parts)

    def made(self) -> None:
        self.left = self.stages.take()

    def given_up(self) -> None:
        self.left = self.stages.give_up()

    def state(self) -> str:
        now = THERE in [one.part for one in self.stages.now]
        coming = [one.part for one in self.stages.coming]
        if now:
            return (
                "in both cuts"
                if THERE in coming
                else "in the present cut while another comes"
                if coming
                else "in the present cut"
            )
        return "in the new cut" if THERE in coming else "in no cut"


PLAYS: dict[str, Callable[[Played], None]] = {
    "a new cut with the stage comes": lambda one: one.come(WITH),
    "a new cut without the stage comes": lambda one: one.come(WITHOUT),
    "the new cut is made": Played.made,
    "the new cut is given up": Played.given_up,
}


def in_state(state: str, event: str) -> Played:
    found = Played((0, 4) if "present" in state or state == "in both cuts" else (0, 1))
    if state in ("in both cuts", "in the new cut"):
        found.come(WITH)
    if state == "in the present cut while another comes" or (state == "in no cut" and "comes" not in event):
        found.come(WITHOUT)
    assert found.state() == state
    return found


@pytest.mark.parametrize(("state", "event"), [cell for cell, becomes in CELLS.items() if becomes != "-"])
def test_every_state_answers_every_event(state: str, event: str) -> None:
    found, expected = in_state(state, event), CELLS[state, event]
    if expected == "refused":
        with pytest.raises(AssertionError, match="one cut comes at a time"):
            PLAYS[event](found)
        return
    before = found.stages.of(THERE) if state != "in no cut" else None
    PLAYS[event](found)
    becomes, _, more = expected.partition(", ")
    assert found.state() == becomes
    assert (THERE in [one.part for one in found.left]) == (more == "its replicas leave")
    if before is not None:
        assert found.stages.of(THERE) is before  # it keeps its replicas
    now = [one for one in found.stages.now if one.part == THERE]
    assert all(one.counts.arrivals == 1 and one.index == len(found.stages.now) - 1 for one in now)
