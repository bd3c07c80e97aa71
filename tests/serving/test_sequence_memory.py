"""Windows and states of a sequence: the blocks that it holds, and the bytes that transfers send of it."""

from dataclasses import replace

import pytest

from serving.engine.progress import Progress
from serving.kv.decode_capacity import DecodeCapacity, HandOverRules
from serving.kv.moves import Moves
from serving.kv.pieces import Piece, Pieces
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.events import Arrived
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.kv_rig import Rig
from tests.worlds.migration_rig import BLOCK, BYTES, WHO, MigrationRig

OWN_BYTES, OWN_BLOCKS = 1000, 5
KV_BYTES = KvBytes(BYTES, OWN_BYTES)


def rig_of(**words: int) -> MigrationRig:
    return MigrationRig(kv_bytes=KV_BYTES, sequence_blocks=OWN_BLOCKS, **words)  # type: ignore[arg-type]


def test_bytes_are_those_of_the_tokens_and_of_each_sequence_once() -> None:
    assert KV_BYTES.of(100) == 100 * BYTES + OWN_BYTES
    assert KV_BYTES.of(100, 3) == 100 * BYTES + 3 * OWN_BYTES
    assert KvBytes(BYTES).of(100, 3) == 100 * BYTES


def test_a_migration_sends_windows_and_states_with_its_last_stage() -> None:
    """Full blocks first; the rest, in whole blocks, and what changes with every token at the end."""
    rig = rig_of(prompt=30)
    rig.look(), rig.boundary()
    assert [one.size_bytes for one in rig.sends] == [28 * BYTES]
    held = rig.destination.ledger.held_blocks(WHO)
    assert held == 28 // BLOCK + OWN_BLOCKS
    rig.come(), rig.boundary()
    last = rig.sends[-1]
    assert last.positions[0][0] == 28
    rest = -(-last.positions[0][1] // BLOCK) * BLOCK - 28
    assert last.size_bytes == rest * BYTES + OWN_BYTES
    rig.come()
    ledger = rig.destination.ledger
    assert rig.source.ledger.held_blocks(WHO) == 0
    assert rig.source.ledger.free_blocks == rig.source.ledger.total_blocks
    assert ledger.held_blocks(WHO) == ledger.blocks_for(last.positions[0][1])


def test_a_migration_without_full_blocks_sends_all_at_once() -> None:
    rig = rig_of(prompt=2)
    rig.look(), rig.boundary()
    (send,) = rig.sends
    assert send.size_bytes == BLOCK * BYTES + OWN_BYTES


@pytest.mark.parametrize(("own", "goes"), [(5, True), (10, False)])
def test_a_destination_without_room_for_the_windows_refuses(own: int, goes: bool) -> None:
    """16 of 40 blocks are free there; the moving request needs 7 full ones and its own."""
    other = 4 * (40 - own) - 64
    rig = MigrationRig(prompt=30, other_prompt=other, kv_bytes=KV_BYTES, sequence_blocks=own)
    rig.look(), rig.boundary()
    assert bool(rig.sends) is goes


def test_a_handover_sends_windows_and_states_once_for_each_request() -> None:
    rig = Rig(["prefill", "decode"])
    pieces = Pieces(rig.engines, KV_BYTES)
    moves = Moves(rig.engines, pieces, TransferIds())
    batch = [Progress(Request(id, 0, tokens, 4, "m")) for id, tokens in ((1, 12), (2, 8))]
    assert moves.whole_stage(0, 1, batch) == [(0, (1, 2), 20 * BYTES + 2 * OWN_BYTES)]
    pieces.add((1,), rig.engines[0], Piece(5, LayerRange(0, 1)))
    whole = 12 * BYTES + OWN_BYTES
    home = whole - whole // 4 + 8 * BYTES + OWN_BYTES
    assert moves.whole_stage(0, 1, batch) == [(0, (1, 2), home), (5, (1,), whole // 4)]


def test_room_at_a_decode_instance_has_the_blocks_of_the_sequence() -> None:
    room = DecodeCapacity(HandOverRules(KV_BYTES, 8), BLOCK, OWN_BLOCKS)
    request = Request(1, 0, 10, 3, "m")
    assert room.need_tokens(request, 1000) == 16 + OWN_BLOCKS * BLOCK
    assert room.need_tokens(request, 30) == 30


def test_the_longest_request_leaves_room_for_its_windows() -> None:
    replica = Replica(
        id=0, model="m", layers=LayerRange(0, 4), gpus=(0,), kv_blocks=20, block_tokens=BLOCK,
        watermark_blocks=2, sequence_blocks=OWN_BLOCKS,
    )  # fmt: skip
    assert (replica.room_tokens, replica.longest_request_tokens) == (18 * BLOCK, 13 * BLOCK)
    assert replace(replica, sequence_blocks=0).longest_request_tokens == 18 * BLOCK
    assert replace(replica, sequence_blocks=19).longest_request_tokens == 0


def test_a_batcher_admits_what_windows_leave() -> None:
    """Of 40 blocks a request takes 8 with its tokens and 5 besides: three fit, where five would without."""
    running = {}
    for own in (0, OWN_BLOCKS):
        rig = MigrationRig(prompt=29, blocks=40, kv_bytes=KV_BYTES, sequence_blocks=own)
        for id in range(2, 12):
            rig.tell(Arrived(Request(id, rig.now_ns, 29, 64, "m")))
        rig.step(0)
        running[own] = len(rig.source.running)
    assert running == {0: 5, OWN_BLOCKS: 3}
