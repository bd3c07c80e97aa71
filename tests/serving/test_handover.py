"""KV from prefill to decode instances: whole action lists, losses."""

import pytest

from serving.kv.handover import HandOverRules, HandOvers
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.actions import (
    Assign,
    Fail,
    Interrupt,
    JoinBatch,
    Preempt,
    Run,
    Send,
    StopSend,
    SwitchRole,
)
from serving.vocabulary.events import Arrived, Ran
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from tests.worlds.elastic_world import Setting, Told
from tests.worlds.told_systems import prompts, send, static, turn


def decodes(replica: int, steps: int, interruptible: bool = True) -> Run:
    return Run(replica, 0, (), True, steps, not interruptible, "")


def test_a_request_goes_from_prefill_to_decode() -> None:
    told = static()
    assert told.arrive(0, prompt=6) == [Assign(0, 0, ""), prompts(0, (0, 6))]
    assert told.ran(0) == [send(0, (0,), 0, 1, 6)]
    assert told.sent(0) == [JoinBatch(1, (0,), ""), decodes(1, 56)]
    assert told.ran(1, 0, steps=9) == []
    assert (told.controller.finished, told.controller.requests) == (1, {})


def test_an_output_of_one_token_ends_at_prefill() -> None:
    told = static()
    told.arrive(0)
    assert told.ran(0, 0) == []
    assert told.controller.finished == 1


def test_one_batch_leaves_and_one_comes_at_a_time() -> None:
    told = static(prefill=2)
    told.arrive(0), told.arrive(1)
    assert told.ran(0) == [send(0, (0,), 0, 2, 6)]
    assert told.arrive(2) == [Assign(2, 0, ""), prompts(0, (2, 6))]
    assert told.ran(0) == []  # its link is busy, and so is the only target
    assert told.ran(1) == []
    assert told.sent(0) == [JoinBatch(2, (0,), ""), decodes(2, 56), send(1, (1,), 1, 2, 6)]
    assert told.sent(1) == [JoinBatch(2, (1,), ""), send(2, (2,), 0, 2, 6)]
    assert told.controller.services["m"].migrating_tokens == 6


def test_the_source_that_was_ready_first_sends_first_and_the_emptiest_takes() -> None:
    told = static(prefill=2, decode=2)
    told.arrive(0, prompt=10, cap=20), told.arrive(1, prompt=3, cap=5)
    assert told.ran(1) == [send(0, (1,), 1, 2, 3)]
    assert told.ran(0) == [send(1, (0,), 0, 3, 10)]
    told.sent(0), told.sent(1)
    told.arrive(2, prompt=4, cap=4)
    assert told.ran(0) == [send(2, (2,), 0, 2, 4)]  # room is kept for 8 tokens there, for 32 at the other


def test_full_decode_stops_prefill_which_goes_on_when_there_is_room() -> None:
    """Every request may have 32 tokens, two fit into each memory of 64; prompts of 16 fill it four to one."""
    told = static()
    for id in range(8):
        told.arrive(id, prompt=16, cap=16)
    assert told.ran(0) == [send(0, (0,), 0, 1, 16), Assign(1, 0, ""), prompts(0, (1, 16))]
    assert told.sent(0) == [JoinBatch(1, (0,), ""), decodes(1, 48)]
    assert told.ran(0) == [send(1, (1,), 0, 1, 16), Assign(2, 0, ""), prompts(0, (2, 16))]
    assert told.sent(1) == [JoinBatch(1, (1,), "")]
    for id in (3, 4, 5):
        assert told.ran(0) == [Assign(id, 0, ""), prompts(0, (id, 16))]
    assert told.ran(0) == []  # 2, 3, 4 and 5 fill its memory, 6 and 7 stay in the queue
    assert told.controller.services["m"].queued == 2
    # Request 1 joined after the first of these steps; the run goes on without request 0.
    assert told.fact(Ran(1, 0, 3, (0,), True, -1, (1,))) == [send(2, (2,), 0, 1, 16)]
    assert told.controller.engines[1].ledger.context_tokens(1) == 16 + 1 + 2
    assert told.sent(2) == [JoinBatch(1, (2,), ""), Assign(6, 0, ""), prompts(0, (6, 16))]


def test_step_by_step_who_comes_takes_part_from_the_next_step() -> None:
    told = Told(Setting(elastic=False, start={"prefill": 1, "decode": 1}, coalesce=False))
    told.arrive(0), told.arrive(1)
    told.ran(0), told.sent(0), told.ran(0)
    assert told.sent(1) == [Interrupt(1, "")]
    assert told.ran(1) == [JoinBatch(1, (1,), ""), decodes(1, 1, False)]


def test_room_is_kept_in_whole_blocks_so_that_nobody_is_preempted() -> None:
    """Seven requests of 9 tokens are 63 of 64 tokens, and 21 of 16 blocks: five fit."""
    told = static(max_num_seqs=16)
    for id in range(7):
        told.arrive(id, prompt=1, cap=8)
    actions = told.ran(0) + told.ran(0)
    assert [one.requests for one in actions if isinstance(one, Send)] == [(0,)]
    told.sent(0)
    service = told.controller.services["m"]
    assert service.kv_tokens == 7 * 12


def test_an_instance_that_turns_keeps_what_it_has_computed() -> None:
    told = static(prefill=2)
    told.arrive(0, prompt=16, cap=48), told.arrive(1), told.ran(0), told.sent(0)
    assert told.ran(1) == []  # the decode instance is full
    assert turn(told, 1) == [SwitchRole(1, "decode", ""), JoinBatch(1, (1,), ""), decodes(1, 56)]
    assert told.controller.services["m"].migrating_tokens == 0


def test_what_an_instance_keeps_does_not_wait_behind_others() -> None:
    """Replica 0 was first and nobody has room for it; replica 1 is an empty target, full of its own."""
    told = static(prefill=2)
    told.arrive(9, prompt=16, cap=48), told.arrive(8, prompt=16, cap=48), told.ran(0), told.sent(0)
    told.arrive(0, prompt=16, cap=48)
    assert told.ran(0) == told.ran(1) == []
    assert turn(told, 1) == [SwitchRole(1, "decode", ""), JoinBatch(1, (8,), ""), decodes(1, 48)]


def test_an_instance_that_turns_computes_the_prompts_it_has_begun_as_prefill() -> None:
    told = static(prefill=2, max_num_seqs=2)
    told.arrive(8, prompt=3, cap=5), told.arrive(9, prompt=3, cap=5)
    for id in (1, 2, 3):
        told.arrive(id, prompt=3, cap=5)
    taken = [Assign(1, 0, ""), Assign(2, 0, ""), Assign(3, 0, "")]
    assert told.ran(0) == [send(0, (8,), 0, 2, 3), *taken, prompts(0, (1, 3), (2, 3))]
    assert turn(told, 0) == [SwitchRole(0, "decode", "")]
    assert told.ran(0) == [prompts(0, (3, 3))]
    assert told.ran(0) == []  # what it sends is still on its way
    assert told.sent(0) == [
        JoinBatch(2, (8,), ""),
        decodes(2, 60),
        JoinBatch(0, (1, 2), ""),
        decodes(0, 1, False),
    ]
    assert told.ran(0, 1) == [JoinBatch(0, (3,), ""), decodes(0, 28, False)]  # it has two seats
    service = told.controller.services["m"]
    assert (service.backlog_tokens, service.migrating_tokens) == (3, 0)  # request 9 runs on replica 1


# A request at the source, on its way, arrived


def on_its_way() -> Told:
    """Request 0 goes from replica 0 to 2; replica 3 decodes, too."""
    told = static(prefill=2, decode=2)
    told.arrive(0), told.ran(0)
    return told


def arrived() -> Told:
    told = on_its_way()
    told.sent(0)
    return told


def test_completed_while_another_batch_is_sent_waits() -> None:
    told = on_its_way()
    told.arrive(1)
    assert told.ran(0) == []
    assert told.sent(0) == [JoinBatch(2, (0,), ""), decodes(2, 56), send(1, (1,), 0, 3, 6)]


def test_who_was_preempted_for_room_goes_on_when_what_was_to_come_does_not() -> None:
    """Request 0 keeps room for 1 token of 28; when it needs what is kept for request 1 it has to leave."""
    told = static(prefill=2, kv_blocks=8, coalesce=False)
    told.fact(Arrived(Request(0, 0, 4, 28, "m", 0, 1))), told.ran(0), told.sent(0)
    told.fact(Arrived(Request(1, 0, 20, 8, "m", 0, 1)))
    assert told.ran(0) == [send(1, (1,), 0, 2, 20)]
    for _ in range(7):
        assert told.ran(2) == [decodes(2, 1, False)]
    assert told.ran(2) == [Preempt(2, 0, "")]
    assert told.lose(0) == [Fail(1, ""), StopSend(1, ""), Run(2, 0, ((0, 0, 13),), False, 1, True, "")]


def test_a_request_takes_whole_blocks_and_at_most_the_memory() -> None:
    hand_overs = HandOvers({}, {}, HandOverRules(KvBytes(1), 8), TransferIds(), block_tokens=4)
    for prompt, cap, need in ((1, 1, 4), (7, 2, 12), (30, 40, 64)):
        assert hand_overs.need_tokens(Request(0, 0, prompt, cap, "m"), 64) == need
    assert hand_overs.need_tokens(Request(0, 0, 10, 40, "m", 0, 1), 64) == 12


def test_transfers_are_numbered_over_all_models_and_end_once() -> None:
    transfers = TransferIds()
    assert [transfers.begin(model) for model in "aba"] == [0, 1, 2]
    assert [transfers.model_of(number) for number in (2, 0, 1)] == ["a", "a", "b"]
    with pytest.raises(KeyError):
        transfers.model_of(1)
