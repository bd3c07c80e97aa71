"""What decodes moves between decode instances: exact actions, and the room that both keep."""

from dataclasses import replace
from typing import Any

import pytest

from policies.migration import LeastLoadedPairs
from policies.migration_defragment import Defragment
from serving.composition import MigrationParts
from serving.kv.migration_rules import MigrationRules
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.vocabulary.actions import Action, Detach, JoinBatch, Migrate, Send, StopSend
from serving.vocabulary.events import Opened
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, MS, Told
from tests.worlds.told_systems import send, static

CONTROL_NS = 3
PREFILL, FIRST, SECOND = 0, 1, 2


def told_with(policy: Any, **more: Any) -> Told:
    """One prefill instance, two for decoding with room for 40 tokens each; every report is of one step."""
    rules = MigrationRules("live", 1, 3, CONTROL_NS, KvBytes(KV_BYTES_PER_TOKEN), 8)

    def migration() -> MigrationParts:
        return MigrationParts(policy(), 50 * MS, {"m": rules})

    told = static(decode=2, kv_blocks=10, coalesce=False, migration=migration, **more)
    told.fact(Opened())
    return told


def service_of(told: Told) -> DecodeMigrating:
    service = told.controller.services["m"]
    assert isinstance(service, DecodeMigrating)
    return service


def books(told: Told) -> tuple[dict[int, int], dict[int, int], int]:
    hand_overs = service_of(told).inner.hand_overs
    return dict(hand_overs.demands), dict(hand_overs.reserved_requests), hand_overs.demand_tokens


def hand_over(told: Told, id: int, prompt: int, cap: int) -> list[Action]:
    """It arrives, is computed, and its KV is sent: the actions of the report of its prompt."""
    told.arrive(id, prompt, cap)
    return told.ran(PREFILL)


def fragmented(policy: Any = Defragment, **more: Any) -> Told:
    """0 (12 tokens) and 2 (12) on the first instance, 1 (20) on the second; 3 wants 24 and waits."""
    told = told_with(policy, **more)
    for id, prompt, cap in ((0, 4, 8), (1, 12, 8), (2, 4, 8)):
        (sent,) = [one for one in hand_over(told, id, prompt, cap) if isinstance(one, Send)]
        told.sent(sent.transfer)
    assert books(told) == ({FIRST: 24, SECOND: 20}, {FIRST: 2, SECOND: 1}, 44)
    assert [one for one in hand_over(told, 3, 16, 8) if isinstance(one, Send)] == []
    return told


def look(told: Told) -> list[Action]:
    return told.woke((told.now_ns // (50 * MS) + 1) * 50 * MS)


def boundaries(told: Told) -> list[Action]:
    return [*told.ran(SECOND), *told.ran(FIRST)]


def of_kinds(actions: list[Action], *kinds: type) -> list[Action]:
    return [one for one in actions if isinstance(one, kinds)]


def test_a_request_moves_and_who_waits_takes_its_room() -> None:
    """12 tokens leave the first instance, which then has 28 of the 24 that the head wants."""
    told = fragmented()
    assert of_kinds(look(told), Send, Migrate) == []
    begun = boundaries(told)
    assert of_kinds(begun, Migrate, Send) == [
        Migrate(0, FIRST, SECOND, "begun", ""),
        replace(send(3, (0,), FIRST, SECOND, 4), positions=((0, 4),)),
    ]
    assert books(told) == ({FIRST: 24, SECOND: 32}, {FIRST: 2, SECOND: 2}, 68)  # 24 of the head among them
    assert of_kinds(told.sent(3), Send) == []
    last = boundaries(told)
    assert of_kinds(last, Detach, Send) == [
        Detach(FIRST, 0, ""),
        replace(send(4, (0,), FIRST, SECOND, 4), positions=((4, 6),), control_ns=CONTROL_NS),
    ]
    committed = told.sent(4)
    assert of_kinds(committed, Migrate, Send) == [
        Migrate(0, FIRST, SECOND, "committed", ""),
        send(5, (3,), PREFILL, FIRST, 16),
    ]
    assert books(told) == ({FIRST: 36, SECOND: 32}, {FIRST: 2, SECOND: 2}, 68)
    assert [one.requests for one in of_kinds(told.ran(SECOND), JoinBatch)] == [(0,)]  # type: ignore[attr-defined]


def test_without_migration_it_waits_for_a_finish() -> None:
    told = fragmented(LeastLoadedPairs)  # 2 requests against 1: nobody moves
    assert of_kinds([*look(told), *boundaries(told), *boundaries(told)], Send, Migrate) == []
    assert of_kinds(told.ran(FIRST, 0), Send) == [send(3, (3,), PREFILL, FIRST, 16)]


LOSSES = ("destination lost", "source lost", "link lost", "leaves")


@pytest.mark.parametrize(
    ("phase", "what"),
    [("copying", "finished"), *((phase, what) for phase in ("copying", "last stage") for what in LOSSES)],
)
def test_an_aborted_migration_gives_its_room_back(phase: str, what: str) -> None:
    told = fragmented()
    look(told), boundaries(told)
    transfer = 3
    if phase == "last stage":
        told.sent(3), boundaries(told)
        transfer = 4
    if what == "finished":
        actions = told.ran(FIRST, 0)
        assert books(told)[0] == {FIRST: 36, SECOND: 20}, "the head took its place"
    elif what == "link lost":
        told.sent(transfer, "link lost")
        assert books(told)[0] == {FIRST: 24, SECOND: 20}
        return
    elif what == "leaves":
        actions = []
        service_of(told).leave(SECOND, actions)
        assert books(told)[0] == {FIRST: 24, SECOND: 20}
    else:
        actions = told.lose(FIRST if what == "source lost" else SECOND)
        assert books(told)[0] == ({SECOND: 20} if what == "source lost" else {FIRST: 24})
    assert [one.transfer for one in of_kinds(actions, StopSend)] == [transfer]  # type: ignore[attr-defined]
    assert service_of(told).migrations.of_replica == {}


def test_least_loaded_evens_the_decode_instances_out() -> None:
    told = told_with(LeastLoadedPairs)
    for id in range(4):
        (sent,) = [one for one in hand_over(told, id, 4, 4) if isinstance(one, Send)]
        told.sent(sent.transfer)
    told.ran(SECOND, 1), told.ran(SECOND, 3)
    assert books(told)[1] == {FIRST: 2, SECOND: 0}
    look(told)
    assert of_kinds(told.ran(FIRST), Migrate) == [Migrate(2, FIRST, SECOND, "begun", "")]


def test_rounds_ask_for_no_look_while_nobody_waits() -> None:
    """A wake costs an event: with the policy that makes room there are some only while somebody waits."""
    told = told_with(Defragment)
    for id in range(2):
        (sent,) = [one for one in hand_over(told, id, 4, 8) if isinstance(one, Send)]
        assert not [one for one in told.sent(sent.transfer) if "Wake" in type(one).__name__]
    told = fragmented()
    assert [one for one in look(told) if "Wake" in type(one).__name__]
