"""The live pair: golden schedules of the papers."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.live.zigzag_ilp import solve
from policies.live.zigzag_replay import ilp_free
from serving.live.pairs import LivePass
from serving.protocols.live import LiveView
from tests.worlds.pair_ticks import NEW, OLD, Ticks


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
@settings(max_examples=75)
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


def test_a_planned_split_is_played_as_it_replays() -> None:
    view = LiveView(7, 6, (1,) * 7)
    split = solve(view, "executable").schedule
    assert split is not None
    ticks = Ticks(7, [1] * 7, 6)
    ticks.pair.plan([(ticks.queue.pop(0),) for _ in range(7)], split.target_layers)
    assert ticks.play() == list(split.finish_ns)
    assert [ticks.splits[batch] for batch in range(7)] == list(split.target_layers)


def test_best_effort_asks_for_every_batch() -> None:
    ticks = Ticks(7, [1] * 7, 6)
    ticks.quotas = [1, 1, 1, 1, 1, 1, 2]
    finish = ticks.play()
    # The last batch is under way when everything is loaded: then quotas end, in the schedule they do not.
    assert finish[:6] == [7, 13, 19, 25, 31, 37] and finish[6] == 41 < 42


def test_an_old_instance_embeds_for_one_that_cannot() -> None:
    ticks = Ticks(7, [1] * 7, 6)
    ticks.pair.embeds = False
    assert ticks.play() == [7, 12, 17, 21, 24, 27, 29]


def test_what_a_lost_old_instance_had_pulled_goes_on_from_the_new_one() -> None:
    ticks = Ticks(4, [1, 1], 5)
    ticks.pair.layers_loaded(1)
    ticks.work()
    ticks.due.clear()
    ticks.ended(NEW)
    ticks.pull(ticks.pair.batches[0])
    ticks.deliver()
    assert [ticks.pair.batches[0].where, ticks.pair.batches[0].done] == ["pulled", 4]
    (back,) = ticks.pair.source_lost(OLD)
    assert [back.where, back.done, back.source] == ["waiting", 1, -1]
    ticks.due.clear()
    ticks.pulls = False
    assert ticks.play() == [16, 17]


def begun(layers: int = 4, quota: int | None = None) -> Ticks:
    """The first of two batches runs its first layer on the new instance."""
    ticks = Ticks(layers, [1, 1], 5)
    if quota is not None:
        ticks.pair.plan([(ticks.queue.pop(0),), (ticks.queue.pop(0),)], [quota, quota])
    ticks.pair.layers_loaded(1)
    ticks.work()
    return ticks


def test_an_idle_old_instance_claims_the_batch_that_runs_and_gets_it_when_its_layer_ends() -> None:
    ticks = begun()
    first = ticks.pair.offer()
    assert first is not None and (first.where, first.number) == ("running", 0)
    ticks.pull(first)
    assert (first.where, first.source, ticks.sent) == ("claimed", OLD, [])
    assert ticks.pair.offer() is None, "a second old one finds nothing begun"
    ticks.due.clear(), ticks.ended(NEW)
    assert (first.where, ticks.sent) == ("moving", [first])
    ticks.work()
    assert ticks.pair.offer() is ticks.pair.batches[1], "the next one is under way"


def test_a_claimed_batch_goes_to_another_when_who_claimed_it_is_lost() -> None:
    ticks = begun()
    ticks.pull(ticks.pair.batches[0])
    (back,) = ticks.pair.source_lost(OLD)
    assert (back.where, back.source, back.done) == ("running", -1, 1)
    assert ticks.pair.offer() is back
    ticks.due.clear(), ticks.ended(NEW)
    assert back.where == "waiting" and ticks.pair.offer() is back


def test_a_planned_batch_is_claimed_in_the_last_layer_of_its_quota() -> None:
    ticks = begun(quota=2)
    assert ticks.pair.offer() is None, "its second layer comes later, and the next batch after it"
    ticks.due.clear(), ticks.ended(NEW)
    assert ticks.pair.offer() is None
    ticks.pair.layers_loaded(2), ticks.work()
    assert ticks.pair.offer() is ticks.pair.batches[0]
    ticks.pull(ticks.pair.batches[0])
    assert ticks.pair.offer() is None, "planned batches go in order"


def test_nobody_waits_for_what_a_whole_instance_runs_to_its_end() -> None:
    ticks = begun()
    ticks.pair.layers_loaded(4)
    assert ticks.pair.offer() is None
    ticks.due.clear(), ticks.ended(NEW)
    ticks.work()
    assert ticks.pair.batches[0].done == 4 and ticks.pair.offer() is None


def test_what_a_stopped_load_leaves_running_is_claimed() -> None:
    ticks = begun()
    ticks.pair.stop()
    assert ticks.pair.offer() is ticks.pair.batches[0]


class Busy(Ticks):
    """Neither instance is ever idle."""

    def idle(self, replica: int) -> bool:
        return False


def test_layers_do_not_go_away() -> None:
    ticks = Busy(4, [1], 1)
    ticks.pair.layers_loaded(3)
    for loaded in (2, 5):
        with pytest.raises(AssertionError, match="layers do not go away"):
            ticks.pair.layers_loaded(loaded)
    assert [ticks.pair.fully_loaded, ticks.pair.is_complete] == [False, False]


def test_nothing_runs_on_more_layers_than_there_are() -> None:
    for layers, load in itertools.product((2, 5, 8), (1, 3, 7)):
        ticks = Ticks(layers, [1] * 5, load)
        wanted, seen = len(ticks.queue), ticks.run

        def run(one: LivePass | None, ticks=ticks, seen=seen) -> None:  # type: ignore[no-untyped-def]
            assert one is None or one.replica == OLD or one.last <= ticks.pair.loaded
            seen(one)

        ticks.run = run  # type: ignore[method-assign]
        assert len(ticks.play()) == wanted
