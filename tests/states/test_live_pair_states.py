"""Every cell of the table of live pairs is played."""

import pytest

from serving.live.pairs import LivePair
from serving.vocabulary.request import Request
from tests.states.live_pair_states import CELLS

LAYERS, SOURCE, TARGET = 4, 0, 1


def in_state(state: str) -> LivePair:
    """One batch, of which a source runs the last layers."""
    pair = LivePair(TARGET, LAYERS)
    pair.layers_loaded(1)
    queue = [(Request(0, 0, 8, 4, "m"),)]
    pair.work(lambda: (queue.pop(), None))
    pair.pull(SOURCE, pair.batches[0])
    pair.activations_arrived(pair.ended(TARGET))
    pair.layers_loaded(2)
    if state == "whole":
        pair.layers_loaded(LAYERS)
    elif state == "stopped":
        pair.stop()
    assert state_of(pair) == state
    return pair


def state_of(pair: LivePair) -> str:
    if pair.is_complete:
        return "ended"
    return "stopped" if pair.stopped else "whole" if pair.fully_loaded else "loading"


def idle(pair: LivePair) -> str:
    begun = pair.begun
    if pair.may_work:
        queue = [(Request(1, 0, 8, 4, "m"),)]
        pair.work(lambda: (queue.pop() if queue else (), None))
    return "starts a batch" if pair.begun > begun else "starts no batch"


def play(pair: LivePair, event: str) -> str:
    try:
        if event == "more layers loaded":
            pair.layers_loaded(3)
        elif event == "all layers loaded":
            pair.layers_loaded(LAYERS)
        elif event == "load stopped":
            pair.stop()
        elif event == "last batch finished":
            pair.ended(SOURCE)
        else:
            return idle(pair)
    except AssertionError:
        return "refused"
    return state_of(pair)


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    pair, expected = in_state(state), CELLS[state, event]
    if expected == "-":  # a load is whole or stopped once: the books of loads refuse what comes after
        assert (state, event) in {("whole", "load stopped")} or state == "stopped"
        return
    assert play(pair, event) == expected
