"""Every cell of the table of live batches is played on one pair: instance 1 loads, instance 0 has all."""

import pytest

from serving.live.pairs import LiveBatch, LivePair, LivePass
from serving.vocabulary.request import Request
from tests.states.live_batch_states import CELLS, STATES

LAYERS, SOURCE, TARGET = 4, 0, 1


def nothing() -> tuple[tuple[Request, ...], int | None]:
    return (), None


class Case:
    """One batch in a state; the first layer of it has been run, but for one that is embedded."""

    def __init__(self, state: str) -> None:
        self.pair = LivePair(TARGET, LAYERS, embeds=state != "embedding")
        self.passed: LivePass | None = None
        self.pair.layers_loaded(1)
        queue = [(Request(0, 0, 8, 4, "m"),)]
        self.pair.work(lambda: (queue.pop(), None) if queue else nothing())
        (self.batch,) = self.pair.batches
        if state == "embedding":
            self.batch.source = SOURCE
        else:
            self.pair.ended(TARGET)
            self.go_on_to(state)
        assert self.batch.where == state

    def go_on_to(self, state: str) -> None:
        if state in ("running", "claimed"):
            self.pair.layers_loaded(2)
            self.pair.work(nothing)
        if state in ("claimed", "moving", "pulled", "over"):
            self.pair.pull(SOURCE, self.batch)
        if state in ("pulled", "over"):
            self.pair.activations_arrived(self.batch)
        if state == "over":
            self.pair.ended(SOURCE)

    def play(self, event: str) -> str:
        """The state after it, and which layers are to be run; "-": nothing happens, or it cannot come."""
        before, pair, batch = self.batch.where, self.pair, self.batch
        source = batch.source
        try:
            getattr(self, "_" + event.replace(" ", "_"))(pair, batch)
        except AssertionError:
            return "refused"
        if self.passed is not None:
            assert self.passed.batch is batch
            layers = (self.passed.first, self.passed.last)
            words = {(1, 2): "one layer", (1, LAYERS): "all other layers"}
            return f"{batch.where}, {words[layers]}"
        if batch.where == "embedding" and batch.source != source:
            assert pair.not_embedded() == [batch]
            return "embedding, on another source"
        return "-" if batch.where == before else batch.where

    def _target_is_idle(self, pair: LivePair, batch: LiveBatch) -> None:
        pair.layers_loaded(2)
        if pair.may_work:
            self.passed = pair.work(nothing)

    def _idle_source_pulls(self, pair: LivePair, batch: LiveBatch) -> None:
        if pair.offer() is batch:
            self.passed = pair.pull(SOURCE, batch)

    def _activations_received(self, pair: LivePair, batch: LiveBatch) -> None:
        self.passed = pair.activations_arrived(batch)

    def _pass_ended(self, pair: LivePair, batch: LiveBatch) -> None:
        if batch.where != "pulled":  # a source runs all other layers at once
            pair.ended(TARGET)

    def _source_lost(self, pair: LivePair, batch: LiveBatch) -> None:
        concerned = [batch] if batch.source == SOURCE and batch in pair.batches else []
        assert pair.source_lost(SOURCE) == concerned

    def _pass_over_the_last_layer_ended(self, pair: LivePair, batch: LiveBatch) -> None:
        if batch.where == "running":  # the target has them all by now, and ends what it has begun
            pair.layers_loaded(LAYERS)
            assert pair.offer() is None
            pair.ended(TARGET)
            pair.work(nothing)
        if batch.where != "claimed":  # the target has not the last layer
            pair.ended(SOURCE if batch.where == "pulled" else TARGET)


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]


def test_every_state_is_reached() -> None:
    assert [Case(state).batch.where for state in STATES] == list(STATES)
