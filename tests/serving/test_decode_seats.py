"""Seats of decode instances: how many requests decode at once, apart from the memory that they need."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from serving.record.invariants import InvariantError, check
from serving.services.disaggregated.service import Disaggregated
from serving.vocabulary.actions import Action, JoinBatch, Run, Send
from serving.vocabulary.replica import Role
from tests.worlds.drawn_elastic import Drawn, draw_requests, on_links, simulate
from tests.worlds.elastic_world import MS, Setting, StepWorld, Told
from tests.worlds.told_systems import turn

ONE_AND_ONE: dict[Role, int] = {"prefill": 1, "decode": 1}


def seated(seats: int, blocks: int, *needs: tuple[int, int]) -> Told:
    """One prefill and one decode instance when all that can be sent has come and nobody has finished."""
    setting = Setting(
        elastic=False, start=ONE_AND_ONE, max_num_seqs=seats, kv_blocks=blocks, max_num_batched_tokens=400
    )
    told = Told(setting)
    actions = [action for id, (prompt, cap) in enumerate(needs) for action in told.arrive(id, prompt, cap)]
    while actions:
        runs = [one for one in actions if isinstance(one, Run) and one.replica == 0]
        sends = [one for one in actions if isinstance(one, Send)]
        actions = [one for _ in runs for one in told.ran(0)]
        actions += [one for send in sends for one in told.sent(send.transfer)]
    return told


def decoding(told: Told) -> int:
    """Requests that have been let in, in or to a run of the decode instance."""
    engine = told.controller.engines[1]
    return len(engine.running) + len(engine.attached)


def test_as_many_decode_at_once_as_there_are_seats() -> None:
    """A seat's part of 440 tokens is 18 1/3: counted in tokens, 24 requests would take 456 of them."""
    told = seated(24, 110, *[(1, 3)] * 30)
    assert decoding(told) == 24
    assert told.controller.services["m"].outstanding(0) == 6


@pytest.mark.parametrize("seats", [1, 3, 7, 8])
def test_any_number_of_seats_can_be_filled(seats: int) -> None:
    assert decoding(seated(seats, 16, *[(1, 3)] * 10)) == seats


def test_a_long_request_leaves_the_other_seats_usable() -> None:
    """It needs 304 of 440 tokens, the parts of 17 seats, and the others 4 each."""
    told = seated(24, 110, (4, 300), *[(1, 3)] * 30)
    assert decoding(told) == 24


def test_memory_still_bounds_who_comes() -> None:
    assert decoding(seated(24, 16, *[(1, 15)] * 10)) == 4


def test_a_scaler_sees_the_scarcer_of_seats_and_memory() -> None:
    """Of 64 tokens: 3 of 4 seats are 48, whatever their requests need; 3 x 16 are 48, of whatever seats."""
    assert seated(4, 16, *[(1, 3)] * 3).controller.services["m"].kv_tokens == 48
    assert seated(24, 16, *[(1, 15)] * 3).controller.services["m"].kv_tokens == 48


def test_a_seat_that_is_freed_is_taken_by_who_waits() -> None:
    told = seated(2, 16, *[(1, 3)] * 3)
    (send,) = [one for one in told.ran(1, 0) if isinstance(one, Send)]
    assert send.requests == (2,)


def test_one_without_a_seat_keeps_nobody_from_another() -> None:
    """Replica 1 has two short requests and both seats taken, replica 2 a long one and a seat."""
    setting = Setting(elastic=False, start={"prefill": 1, "decode": 2}, max_num_seqs=2, kv_blocks=40)
    told, targets = Told(setting), list[int]()
    for id, cap in enumerate((3, 100, 3, 3)):
        told.arrive(id, 4, cap)
        sends = [one for one in told.ran(0) if isinstance(one, Send)]
        targets += [one.target for one in sends]
        for one in sends:
            told.sent(one.transfer)
    assert targets == [1, 2, 1, 2]


def full(prompts: int, cap: int) -> Told:
    """Two seats on replica 2, both taken. Replica 1 has computed so many prompts of 4 tokens, 0 nothing."""
    told = Told(
        Setting(elastic=False, start={"prefill": 2, "decode": 1}, max_num_seqs=2, max_num_batched_tokens=64)
    )
    told.arrive(0, 4, 8), told.arrive(1, 4, 8)
    told.ran(0), told.sent(0), told.ran(1), told.sent(1)
    told.arrive(2, 64, 0)  # so that replica 0 is busy
    for id in range(3, 3 + prompts):
        told.arrive(id, 4, cap)
    while told.controller.engines[1].running:
        told.ran(1)
    assert len(told.controller.engines[1].outgoing) == prompts
    return told


def run_to_the_end(told: Told, actions: list[Action], output_tokens: int) -> list[int]:
    """Replica 1 decodes whatever it has computed; returns who was let in, in order."""
    engine, made, order = told.controller.engines[1], Counter[int](), list[int]()
    for _ in range(10_000):
        order += [
            id for one in actions if isinstance(one, JoinBatch) and one.replica == 1 for id in one.requests
        ]
        assert len(engine.running) <= 2
        if not engine.running:
            return order
        made.update(list(engine.running))
        actions = told.ran(1, *sorted(id for id in engine.running if made[id] == output_tokens))
    raise AssertionError("somebody waits for ever")


def test_who_has_computed_more_than_it_has_seats_for_lets_them_in_as_seats_are_left() -> None:
    """A prefill instance turns to decoding with five requests and two seats; their KV stays meanwhile."""
    told = full(5, 8)
    assert run_to_the_end(told, turn(told, 1), 3) == [3, 4, 5, 6, 7]


def test_memory_full_of_those_who_wait_for_a_seat_stops_nobody() -> None:
    """16 prompts of a block each fill 16 blocks; each of them needs up to 11 to write all it will."""
    told = full(16, 60)
    assert run_to_the_end(told, turn(told, 1), 40) == list(range(3, 19))
    assert told.controller.engines[1].preemptions > 0


def test_invariant_12_names_seats_that_nobody_has() -> None:
    told = seated(4, 16, (1, 3))
    service = told.controller.services["m"]
    assert isinstance(service, Disaggregated)
    service.hand_overs.reserved_requests[1] += 1
    with pytest.raises(InvariantError, match="invariant 12: 2 seats"):
        check(told.controller)


def test_invariant_13_names_an_instance_that_decodes_more_than_it_has_seats_for() -> None:
    told = seated(4, 16, *[(1, 3)] * 3)
    told.ran(1)
    told.controller.engines[1].max_num_seqs = 2
    with pytest.raises(InvariantError, match="invariant 13: 3 decode"):
        check(told.controller)


def few_seats(seed: int) -> Drawn:
    """Split systems in which seats, not memory, are short; roles change."""
    random = Random(seed)
    setting = Setting(
        start=ONE_AND_ONE,
        gpus_per_host=4,
        bounds={"prefill": (1, 6), "decode": (1, 6)},
        ways=("cancel_drain", "revive", "mutate"),
        kv_blocks=random.choice([16, 40]),
        max_num_seqs=random.choice([1, 2, 3]),
        prefill_tokens_per_s=random.choice([20.0, 100.0]),
    )
    return Drawn(setting, draw_requests(random, setting))


@pytest.mark.parametrize("seed", range(15))
def test_invariants_1_2_12_13_hold_where_seats_are_short(seed: int) -> None:
    case, random = few_seats(seed), Random(seed)
    longest = {"step": 30, "load": 400, "send": 60}
    world = StepWorld(
        replace(case.setting, coalesce=False), lambda kind: random.randint(1, longest[kind]) * MS
    )
    for request, output_tokens in case.requests:
        world.arrive(request, output_tokens)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert world.ended == {"finished": len(case.requests)}


@pytest.mark.parametrize("seed", range(10))
def test_coalesced_equals_step_by_step_where_seats_are_short(seed: int) -> None:
    case = on_links(few_seats(seed))
    (ran, _, _), (exact, _, _) = simulate(case), simulate(case, coalesce=False)
    assert ran.done == exact.done and len(ran.done) == len(case.requests)
    assert ran.busy_ns == exact.busy_ns
