"""Every cell of the table of loads is played; layers that are there stay there."""

import pytest

from serving.parameters.loads import STOPPED, THERE, UNDER_WAY, Loads
from serving.vocabulary.actions import Load
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part
from tests.states.load_states import CELLS, STATES

TO_TWO = Load(
    7, "m", (("host", 0),), (("replica", 0), ("replica", 1)), (), True, True, "cold start", False, (0, 4)
)

WHOLE = Part("m", 0, 4)


def in_state(state: str) -> Loads:
    """Target 0 in this state, with two layers or more; target 1 still under way."""
    loads = Loads()
    loads.begin(TO_TWO)
    loads.loaded(Loaded(7, 0, 2, False))
    if state == THERE:
        loads.loaded(Loaded(7, 0, 4, True))
    elif state == STOPPED:
        loads.ended_early(LoadStopped(7, 0, 2, "asked to"))
    assert loads.in_flight[7].states == [state, UNDER_WAY]
    return loads


def play(loads: Loads, event: str) -> None:
    if event == "load stopped":
        assert loads.ended_early(LoadStopped(7, 0, 3, "asked to")) == ("replica", 0)
    else:
        whole = event == "all layers loaded"
        assert loads.loaded(Loaded(7, 0, 4 if whole else 3, whole)) == (("replica", 0) if whole else None)


def test_these_are_the_states_of_the_code() -> None:
    assert STATES == (UNDER_WAY, THERE, STOPPED)


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    loads, after = in_state(state), CELLS[state, event]
    if after == "refused":
        with pytest.raises(AssertionError, match="not under way"):
            play(loads, event)
        return
    play(loads, event)
    assert loads.in_flight[7].states == [after, UNDER_WAY]
    layers = 4 if event == "all layers loaded" else 3
    assert [loads.residency.layers(("replica", one), WHOLE) for one in (0, 1)] == [layers, 0]
    assert loads.residency.has(("replica", 0), WHOLE) == (event == "all layers loaded")
    assert (loads.to(0) is not None) == (after == UNDER_WAY)
