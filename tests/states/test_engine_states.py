"""Every cell of the engine's table is played; what it answers is worked out by hand."""

import pytest

from serving.engine.progress import EngineState
from serving.vocabulary.actions import Action, Fail
from tests.states.engine_states import CELLS
from tests.worlds.engine_script import INTERRUPT, Script, adopted, chunk_run, chunked, decode_run

# The whole actions of cells that have some; every other cell is answered with none.
ACTIONS: dict[tuple[str, str], list[Action]] = {
    ("idle", "enqueue"): [chunk_run((2, 0, 3), max_steps=61)],
    ("idle", "join_batch"): [adopted(3), decode_run(15 * 4)],
    ("running", "enqueue"): [INTERRUPT],
    ("running", "join_batch"): [adopted(3)],
    ("running", "ran, run ended"): [decode_run(13 * 4)],
    ("running", "lose"): [Fail(0, "host gone")],
    ("stopping", "ran, run ended"): [chunk_run((1, 0, 2), max_steps=1 + 12 // 2 * 4)],
    ("stopping", "lose"): [Fail(0, "host gone"), Fail(1, "host gone")],
}
# What the refusal says.
REFUSALS = {
    "enqueue": "lost or vacant replica",
    "join_batch": "lost or vacant replica",
    "ran, run ended": "not requested",
    "ran, run continues": "not requested",
    "ready": "loaded again",
    "vacate": "at work was vacated",
    "place": "placed twice",
}


def script_in(state: EngineState) -> Script:
    """An engine in this state; request 0 is decoding where it is running, stopping or was lost."""
    script = Script(chunked(), loaded=state is not EngineState.LOADING)
    if state is EngineState.VACANT:
        script.engine.vacate()
    if state in (EngineState.IDLE, EngineState.LOADING, EngineState.VACANT):
        return script
    script.arrive(0, 8)
    script.ran(1)
    if state is EngineState.STOPPING:
        script.arrive(1, 2)
    elif state is EngineState.LOST:
        script.lose()
    assert script.engine.state is state
    return script


def told(script: Script, event: str) -> list[Action]:
    if event == "enqueue":
        return script.arrive(2, 3)
    if event == "join_batch":
        return script.join_batch(3, 4)
    if event.startswith("ran"):
        return script.ran(1, goes_on=event.endswith("continues"), epoch=0)
    if event == "lose":
        return script.lose("host gone")[1]
    if event == "ready":
        return script.ready()
    if event == "vacate":
        script.engine.vacate()
    else:
        script.engine.place("both", loaded=True)
    return []


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    script = script_in(EngineState[state.upper()])
    if CELLS[state, event] == "refused":
        with pytest.raises(AssertionError, match=REFUSALS[event]):
            told(script, event)
        return
    actions, answer = told(script, event), ACTIONS.get((state, event), [])
    assert actions == answer
    names, after = ", ".join(type(action).__name__ for action in actions), script.engine.state.name.lower()
    assert (f"{names}: {after}" if names else after) == CELLS[state, event]


def test_the_table_has_every_state() -> None:
    assert {state for state, _ in CELLS} == {state.name.lower() for state in EngineState}
