"""Who would be preempted goes to a neighbour instead, while memory lasts."""

from dataclasses import replace
from random import Random

import pytest

from policies.migration_victims import StopsAtReserve
from serving.protocols.batch import Batch
from tests.worlds.drawn_migrations import drawn_world
from tests.worlds.migrating import Played, Setting, assert_whole, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)
# Four requests of 20 + 120 tokens want 140 blocks of 4 tokens; two instances have 80 each. Requests in turns
# with short ones, so that all long ones are on the first.
CROWDED = Case(
    "prefill_first", 2, 4, 80, 0, 8, 128, "round_robin",
    tuple((number, 20, 120 if number % 2 == 0 else 2, 120) for number in range(8)), ROWS,
)  # fmt: skip
# chance 0: nobody is paired but victims.
ALONE = Setting(CROWDED, period_ns=20, control_ns=2, last_stage_blocks=2, token_ns=0.5, chance=0.0)


def preemptions(played: Played) -> int:
    return sum(engine.preemptions for engine in played.controller.engines.values())


def test_who_would_be_preempted_moves_and_nobody_is() -> None:
    before, after = play(ALONE), play(replace(ALONE, victims_reserve=8))
    assert preemptions(before) > 0 and not before.records
    assert preemptions(after) == 0
    assert {(one.source, one.destination, one.outcome) for one in after.records} == {(0, 1, "committed")}
    assert [one.request for one in after.records] == [6, 4], "the last to be admitted is the first to go"
    assert_whole(ALONE, after)


@pytest.mark.parametrize("reserve", [1, 2, 4, 12])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_step_by_step_as_coalesced(reserve: int, asynchronous: bool) -> None:
    setting = replace(ALONE, victims_reserve=reserve, case=replace(CROWDED, asynchronous=asynchronous))
    coalesced, exact = play(setting), play(setting, coalesce=False)
    assert coalesced.records == exact.records and coalesced.recorder.done == exact.recorder.done
    assert preemptions(coalesced) == preemptions(exact)


def test_without_bandwidth_victims_are_preempted_as_ever() -> None:
    starved = play(replace(ALONE, victims_reserve=4, token_ns=1e6))
    assert preemptions(starved) > 0
    assert {one.outcome for one in starved.records} <= {"preempted", "finished"}


def test_without_a_neighbour_nothing_is_tried() -> None:
    alone = replace(ALONE, case=replace(CROWDED, replicas=1))
    before, after = play(alone), play(replace(alone, victims_reserve=4))
    assert not after.records and preemptions(after) == preemptions(before) > 0
    assert after.recorder.done == before.recorder.done


def test_by_load_reports_the_freest_is_the_destination() -> None:
    """Three instances, of which the last has nobody."""
    setting = replace(ALONE, victims_reserve=4, freeness=True, case=replace(CROWDED, replicas=3))
    assert {one.outcome for one in play(setting).records} <= {"committed", "finished"}


def test_drawn_worlds() -> None:
    moved = 0
    for seed in range(700, 724):
        random, setting = Random(f"victims {seed}"), drawn_world(seed).setting
        setting = replace(
            setting, victims_reserve=random.choice((1, 2, 5)), freeness=random.random() < 0.5,
            chance=random.choice((0.0, 0.0, 0.5)), mode=random.choice(("live", "stop_and_copy")),
        )  # fmt: skip
        coalesced, exact = play(setting), play(setting, coalesce=False)
        assert coalesced.records == exact.records, f"seed {seed}"
        assert coalesced.recorder.done == exact.recorder.done, f"seed {seed}"
        assert_whole(setting, coalesced)
        moved += sum("it would be preempted next" in line for line in coalesced.lines)
    assert moved > 10


class Fixed:
    """Always the same answer."""

    def __init__(self, batch: Batch | None) -> None:
        self.batch = batch

    def choose(self, view: object) -> Batch | None:
        return self.batch


class Memory:
    """A view of which only the steps to the reserve are asked."""

    def __init__(self, steps: int) -> None:
        self.kv, self.steps = self, steps

    def steps_until_full(self, spare_blocks: int) -> int:
        assert spare_blocks == 7
        return self.steps


def test_a_run_ends_where_the_reserve_begins() -> None:
    def chosen(batch: Batch | None, steps: int) -> Batch | None:
        return StopsAtReserve(Fixed(batch), 7).choose(Memory(steps))  # type: ignore[arg-type]

    run = Batch((), (), 0, True, 50, True, "decode")
    assert chosen(run, 20) == run._replace(max_steps=20)
    assert chosen(run, 80) is run and chosen(None, 3) is None
    assert chosen(run, 0) == chosen(run, 1) == run._replace(max_steps=1, interruptible=False)
    prompts = run._replace(chunks=((1, 0, 5),), admit=1)
    assert chosen(prompts, 20) == prompts._replace(max_steps=1, interruptible=False)
