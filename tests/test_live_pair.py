"""The live pair: golden schedules of the papers, and every cell of its table."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.zigzag_replay import ilp_free
from serving.live import LiveView
from serving.live_pair import LiveBatch, LivePair, Side
from serving.request import Request


class Ticks:
    """Two instances in ticks: a layer of a batch takes its first request's prompt; sends take no time."""

    def __init__(self, layers: int, costs: list[int], load: int, pulls: bool = True) -> None:
        self.queue = [Request(number, 0, cost, 1, "m") for number, cost in enumerate(costs)]
        self.pair = LivePair(layers, self, pulls)
        self.layers, self.load, self.now = layers, load, 0
        self.due: dict[Side, int] = {}
        self.finish: dict[int, int] = {}
        self.splits: dict[int, int] = {}
        self.sent: list[LiveBatch] = []
        self.ordinary: int | None = None  # runs on the new instance after the pair is over

    def idle(self, side: Side) -> bool:
        return side not in self.due

    def fetch(self, side: Side) -> tuple[Request, ...]:
        return (self.queue.pop(0),) if self.queue else ()

    def holds(self, side: Side, batch: LiveBatch) -> bool:
        return True

    def run(self, side: Side, batch: LiveBatch, first: int, last: int) -> None:
        assert side not in self.due and first < last
        self.due[side] = self.now + (last - first) * batch.requests[0].prompt_tokens

    def send(self, batch: LiveBatch) -> None:
        self.sent.append(batch)

    def over(self, side: Side, batch: LiveBatch) -> None:
        self.finish[batch.requests[0].id] = self.now
        self.splits[batch.requests[0].id] = batch.split

    def play(self) -> list[int]:
        """Finish times by batch. What ends at a tick is booked before anything begins."""
        wanted = len(self.queue)
        while len(self.finish) < wanted:
            assert self.now < 10_000, "the pair stands still"
            self.pair.layers_came(min(self.layers, 1 + self.now // self.load))
            for side in [side for side in ("old", "new") if self.due.get(side) == self.now]:  # type: ignore[misc]
                del self.due[side]
                if side == "new" and self.ordinary is not None:
                    self.finish[self.ordinary], self.ordinary = self.now, None
                else:
                    self.pair.ended(side)
            self.pair.go_on()
            if self.pair.ended_for_good and self.queue and self.idle("new"):
                self.ordinary = self.queue[0].id
                self.due["new"] = self.now + self.layers * self.queue.pop(0).prompt_tokens
            while self.sent:
                self.pair.came(self.sent.pop())
            self.now += 1
        return [self.finish[number] for number in range(wanted)]


def test_the_papers_example_finishes_as_its_ilp_free_schedule() -> None:
    ticks = Ticks(7, [1] * 7, 6)
    assert ticks.play() == [7, 12, 17, 21, 24, 27, 29]
    assert [ticks.splits[batch] for batch in range(7)] == [1, 2, 2, 3, 4, 4, 5]
    assert ticks.pair.layer_counts >= {1, 2, 3} and not ticks.pair.batches


@given(
    layers=st.integers(2, 12),
    costs=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    load=st.integers(1, 9),
)
@settings(max_examples=300, deadline=None)
def test_a_pair_does_what_ilp_free_forecasts(layers: int, costs: list[int], load: int) -> None:
    schedule = ilp_free(LiveView(layers, load, tuple(costs)))
    ticks = Ticks(layers, costs, load)
    finish = ticks.play()
    loading = (layers - 1) * load
    # The forecast lets the target go on layer by layer when it has them all; the pair then ends in one pass.
    same = [at for at, planned in zip(finish, schedule.finish_ns, strict=True) if planned <= loading]
    assert same == [planned for planned in schedule.finish_ns if planned <= loading]


def test_without_pulling_the_new_instance_ends_what_it_began_alone() -> None:
    ticks = Ticks(4, [1, 1, 1], 5, pulls=False)
    assert ticks.play() == [16, 17, 18]
    assert set(ticks.splits.values()) == {4}


def test_an_old_instance_that_left_pulls_nothing() -> None:
    ticks = Ticks(4, [1, 1], 5)
    ticks.pair.old_left()
    assert ticks.play() == [16, 17] and not ticks.sent
    assert not ticks.pair.ended_for_good or ticks.pair.whole


class Busy(Ticks):
    """Neither instance is ever idle."""

    def idle(self, side: Side) -> bool:
        return False


CELLS = {
    ("waiting", "came"): "came, which is waiting",
    ("running", "came"): "came, which is running",
    ("pulled", "came"): "came, which is pulled",
    ("waiting", "ended"): "ran none of this pair",
    ("moving", "ended"): "ran none of this pair",
    ("over", "came"): "came, which is over",
    ("over", "ended"): "ran none of this pair",
}


@pytest.mark.parametrize(("where", "event"), sorted(CELLS))
def test_what_cannot_happen_to_a_batch_is_refused(where: str, event: str) -> None:
    ticks = Busy(4, [1], 1)
    batch = LiveBatch(0, (ticks.queue.pop(),))
    batch.where = where  # type: ignore[assignment]
    with pytest.raises(AssertionError, match=CELLS[where, event]):
        if event == "came":
            ticks.pair.came(batch)
        else:
            ticks.pair.ended("new")


def test_layers_do_not_go_away() -> None:
    ticks = Busy(4, [1], 1)
    ticks.pair.layers_came(3)
    for loaded in (2, 5):
        with pytest.raises(AssertionError, match="layers do not go away"):
            ticks.pair.layers_came(loaded)
    assert [ticks.pair.whole, ticks.pair.ended_for_good] == [False, False]


def test_nothing_runs_on_more_layers_than_there_are() -> None:
    for layers, load in itertools.product((2, 5, 8), (1, 3, 7)):
        ticks = Ticks(layers, [1] * 5, load)
        wanted, seen = len(ticks.queue), ticks.run

        def run(side: Side, batch: LiveBatch, first: int, last: int, ticks=ticks, seen=seen) -> None:  # type: ignore[no-untyped-def]
            assert side == "old" or last <= ticks.pair.loaded
            seen(side, batch, first, last)

        ticks.run = run  # type: ignore[method-assign]
        assert len(ticks.play()) == wanted
