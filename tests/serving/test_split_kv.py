"""KV that is split by layer is handed over whole: exact actions, losses, sums."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.kv.decode_capacity import DecodeCapacity
from serving.kv.handover import HandOverRules
from serving.kv.moves import Moves, StageSend
from serving.kv.pieces import Piece, Pieces
from serving.kv.transfer_ids import TransferIds
from serving.vocabulary.actions import Action, JoinBatch, StopSend
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Role
from serving.vocabulary.request import Request
from tests.worlds.kv_rig import KV_BYTES, LAYERS, Prompt, Rig, send


def adopt(replica: int, *requests: int) -> JoinBatch:
    return JoinBatch(replica, requests, "")


def stop(transfer: int) -> StopSend:
    return StopSend(transfer, "")


def free(rig: Rig) -> list[int]:
    return [engine.ledger.free_blocks for engine in rig.engines.values()]


# Whole transfers


def test_a_split_request_decodes_when_both_parts_have_come() -> None:
    rig = Rig(["prefill", "prefill", "decode"])
    assert rig.computed(0, (7, 6, (1, 1))) == [send(0, (7,), 0, 2, 36), send(1, (7,), 1, 2, 12)]
    assert rig.sent(1) == (None, [])
    assert free(rig) == [14, 14, 14]  # both parts stay until they are needed no more
    assert rig.sent(0) == (0, [adopt(2, 7)])
    assert free(rig) == [16, 16, 14]
    assert 7 in rig.engines[2].running and not rig.pieces


def test_the_source_sends_first_and_givers_as_they_appear_in_the_batch() -> None:
    rig = Rig(["prefill", "prefill", "prefill", "decode"])
    batch = [(1, 4, (2, 3)), (2, 4, None), (3, 8, (1, 1)), (4, 4, (2, 1))]
    assert rig.computed(0, *batch) == [
        send(0, (1, 2, 3, 4), 0, 3, 8 + 32 + 48 + 24),
        send(1, (1, 4), 2, 3, 24 + 8),
        send(2, (3,), 1, 3, 16),
    ]
    assert [rig.sent(number) for number in (0, 2)] == [(None, []), (None, [])]
    assert rig.sent(1) == (0, [adopt(3, 1, 2, 3, 4)])


def test_pieces_are_rounded_down_and_one_of_no_bytes_is_not_sent() -> None:
    batch = [split(1, 1, 1), split(2, 3, 1), split(3, 3, 3)]
    assert stage(batch, target=2, kv_bytes_per_token=1) == [
        (0, (1, 2, 3), 1 + 3 + 1),
        (1, (3,), 2),
    ]


def test_layers_from_several_replicas_are_one_stage() -> None:
    """Replica 1 has layer 0 of 4, replica 2 layers 1 and 2, the home the last; 5 tokens of 8 bytes."""
    one = Progress(Request(1, 0, 5, 1, "m"))
    pieces = Piece(1, LayerRange(0, 1)), Piece(2, LayerRange(1, 3))
    assert stage([(one, pieces)], 3, 8) == [
        (0, (1,), 10),
        (1, (1,), 10),
        (2, (1,), 20),
    ]
    assert stage([(one, pieces)], 1, 8) == [(0, (1,), 10), (2, (1,), 20)]
    assert stage([(one, pieces)], 0, 8) == [(1, (1,), 10), (2, (1,), 20)]


Split = tuple[Progress, tuple[Piece, ...]]


def split(id: int, tokens: int, layers: int, replica: int = 1) -> Split:
    """A request whose first layers' KV lies at the replica; 0: it lies whole at its home."""
    pieces = (Piece(replica, LayerRange(0, layers)),) if replica else ()
    return Progress(Request(id, 0, tokens, 1, "m")), pieces


def stage(batch: list[Split], target: int, kv_bytes_per_token: int) -> list[StageSend]:
    """What is sent when a batch whose home is replica 0, of ``LAYERS`` layers, goes to the target."""
    engines = Rig(["prefill"] * 4).engines
    pieces = Pieces(engines, KvBytes(kv_bytes_per_token))
    for progress, elsewhere in batch:
        if elsewhere:
            pieces.add((progress.id,), engines[0], *elsewhere)
    moves = Moves(engines, pieces, TransferIds())
    return moves.whole_stage(0, target, [progress for progress, _ in batch])


def test_a_giver_sends_several_parts_at_a_time_and_a_batch_of_its_own() -> None:
    rig = Rig(["prefill", "prefill", "prefill", "decode", "decode", "decode"])
    assert len(rig.computed(0, (1, 4, (2, 2)))) == len(rig.computed(1, (2, 4, (2, 2)))) == 2
    assert rig.computed(2, (3, 4, None)) == [send(4, (3,), 2, 5, 32)]


def test_a_target_sends_itself_nothing_and_keeps_the_memory_it_has() -> None:
    rig = Rig(["prefill", "prefill", "prefill"])
    rig.computed(0, (1, 8, (1, 1)), (2, 8, (2, 1)))
    assert rig.switch_role(1) == [send(0, (1, 2), 0, 1, 48 + 48), send(1, (2,), 2, 1, 16)]
    assert free(rig) == [12, 12, 14]
    assert rig.sent(0) == (None, [])
    assert rig.sent(1) == (0, [adopt(1, 1, 2)])
    assert free(rig) == [16, 12, 16]


def test_a_target_full_of_its_own_parts_takes_those_requests_first() -> None:
    """Replica 1 has first layers of requests 2 and 3, 56 tokens of 64; request 1 was there before them."""
    rig = Rig(["prefill", "prefill", "prefill"])
    rig.computed(0, (1, 12, None), (2, 28, (1, 2))), rig.computed(2, (3, 28, (1, 2)))
    assert free(rig) == [6, 2, 9]
    assert rig.switch_role(1) == [send(0, (2,), 0, 1, 112)]
    assert rig.sent(0) == (0, [adopt(1, 2), send(1, (3,), 2, 1, 112)])
    assert [one.id for one in rig.engines[0].outgoing] == [1]
    rig.sent(1), rig.step(1)
    assert rig.step(1, finished=(2,)) == [send(2, (1,), 0, 1, 96)]


def test_parts_count_as_room_that_is_kept() -> None:
    """Replica 1 has 64 tokens of room and a part of 28; 40 are wanted."""
    rig = Rig(["prefill", "prefill", "prefill", "decode"])
    rig.computed(0, (1, 28, (1, 1)))
    assert rig.switch_role(1) == rig.computed(2, (2, 4, None), output=36) == []
    assert rig.sent(0) == (None, [])
    assert rig.sent(1) == (0, [adopt(3, 1), send(2, (2,), 2, 1, 32)])


def test_where_nobody_decodes_one_goes_to_its_part_without_room() -> None:
    """Parts of 32 and 28 tokens of 64; the requests need 52 and 48."""
    rig = Rig(["prefill", "prefill"])
    rig.computed(0, (1, 32, (1, 1)), (2, 28, (1, 1)), output=20)
    assert rig.switch_role(1) == [send(0, (1,), 0, 1, 192)]
    assert rig.sent(0) == (0, [adopt(1, 1)])
    assert rig.step(1, finished=(1,)) == [send(1, (2,), 0, 1, 168)]


# An instance that keeps what it computed


def test_who_decodes_keeps_at_once_what_is_whole_and_fetches_the_rest() -> None:
    rig = Rig(["decode", "prefill", "prefill"])
    assert rig.computed(0, (1, 4, (1, 1)), (2, 4, None), (3, 4, (2, 2)), (4, 8, (1, 3))) == [
        adopt(0, 2),
        send(0, (1, 4), 1, 0, 8 + 48),
        send(1, (3,), 2, 0, 16),
    ]
    assert rig.hand_overs.migrating_tokens == 16
    assert rig.sent(1) == (0, [])  # its run is interrupted for them
    assert rig.step(0) == [adopt(0, 3)]
    rig.sent(0)
    assert rig.step(0) == [adopt(0, 1, 4)]
    assert free(rig)[1:] == [16, 16]


def test_a_part_of_no_bytes_need_not_be_fetched() -> None:
    rig = Rig(["decode", "prefill"], kv_bytes=1)
    assert rig.computed(0, (1, 1, (1, 3)), (2, 4, (1, 1))) == [adopt(0, 1), send(0, (2,), 1, 0, 1)]
    assert free(rig) == [14, 15]
    assert rig.hand_overs.migrating_tokens == 4
    rig = Rig(["prefill", "prefill"], kv_bytes=1)
    rig.computed(0, (1, 1, (1, 3)))
    assert rig.switch_role(0) == [adopt(0, 1)]
    assert free(rig)[1] == 16


def test_several_are_fetched_while_a_batch_comes() -> None:
    rig = Rig(["decode", "prefill", "prefill"])
    assert rig.computed(2, (9, 4, None)) == [send(0, (9,), 2, 0, 32)]
    assert rig.computed(0, (1, 4, (1, 2))) == [send(1, (1,), 1, 0, 16)]
    assert rig.computed(0, (2, 4, (1, 2))) == [send(2, (2,), 1, 0, 16)]
    assert sorted(rig.hand_overs.batch_to(0)) == [1, 2, 9]
    assert rig.sent(2) == (0, [adopt(0, 2)])
    assert rig.sent(0) == (2, [])
    assert rig.sent(1) == (0, [])
    assert rig.step(0) == [adopt(0, 9, 1)]


def test_what_it_had_computed_before_it_turned_is_fetched_in_its_turn() -> None:
    rig = Rig(["prefill", "prefill", "decode"])
    assert rig.computed(0, (1, 4, None)) == [send(0, (1,), 0, 2, 32)]
    assert rig.computed(0, (2, 4, (1, 2))) == []  # its link is busy
    assert rig.switch_role(0) == []
    assert rig.sent(0) == (0, [adopt(2, 1), send(1, (2,), 1, 0, 16)])
    assert rig.sent(1) == (0, [adopt(0, 2)])


def test_one_that_closes_while_it_fetches_hands_over_what_it_completes_then() -> None:
    rig = Rig(["decode", "prefill", "decode"])
    rig.computed(0, (1, 4, (1, 2)))
    rig.close(0)
    assert rig.computed(0, (2, 4, None)) == [send(1, (2,), 0, 2, 32)]
    assert rig.sent(1) == (0, [adopt(2, 2)])
    assert rig.sent(0) == (0, [adopt(0, 1)])


# At the source


def test_a_source_with_nothing_left_stops_nobody() -> None:
    rig = Rig(["prefill", "prefill", "prefill", "prefill"])
    rig.computed(0, (1, 4, (1, 1))), rig.computed(2, (2, 4, None))
    assert rig.lose(1) == ([1], [])
    assert rig.switch_role(3) == [send(0, (2,), 2, 3, 32)]


# On its way


def test_when_all_of_a_batch_fails_with_its_giver_the_target_takes_others() -> None:
    rig = Rig(["prefill", "prefill", "decode", "prefill"])
    rig.computed(0, (1, 4, (1, 1)))
    assert rig.computed(3, (2, 4, None)) == []
    assert rig.lose(1) == ([1], [stop(0), stop(1), send(2, (2,), 3, 2, 32)])


def test_a_target_that_was_the_giver_takes_its_requests_with_it() -> None:
    rig = Rig(["prefill", "prefill", "prefill", "prefill"])
    rig.computed(0, (1, 4, (1, 1)), (2, 4, None), (3, 4, (2, 1)))
    rig.switch_role(1)
    assert rig.lose(1) == ([1], [stop(0), stop(1)])
    assert rig.switch_role(3) == [send(2, (2, 3), 0, 3, 32 + 24), send(3, (3,), 2, 3, 8)]


def test_a_target_that_is_a_giver_too_still_has_its_part_when_another_giver_is_lost() -> None:
    rig = Rig(["prefill", "prefill", "prefill"])
    rig.computed(0, (1, 8, (1, 1)), (2, 8, (2, 1)))
    rig.switch_role(1)
    assert rig.lose(2) == ([2], [stop(0), stop(1), send(2, (1,), 0, 1, 48)])
    assert free(rig)[:2] == [14, 14]
    rig.close(1)
    assert rig.lose(0) == ([1], [stop(2)])
    assert free(rig)[1] == 16


def test_it_has_its_part_too_when_it_is_not_sent_to_again() -> None:
    rig = Rig(["prefill", "prefill", "prefill", "prefill"])
    rig.computed(0, (1, 8, (1, 1)), (2, 8, (2, 1)))
    rig.switch_role(1)
    rig.close(1)
    assert rig.lose(2) == ([2], [stop(0), stop(1)])
    assert free(rig)[:2] == [14, 14]
    assert rig.switch_role(3) == [send(2, (1,), 0, 3, 48), send(3, (1,), 1, 3, 16)]


# Kept, and come


def fetched() -> Rig:
    """Replica 0 decodes and fetches the first layers of request 1 from replica 1."""
    rig = Rig(["decode", "prefill"])
    rig.computed(0, (1, 4, (1, 1)))
    return rig


def test_nothing_is_remembered_of_what_is_over() -> None:
    rig = Rig(["prefill", "prefill", "decode"])
    engines, moves, actions = rig.engines, rig.hand_overs.moves, list[Action]()
    (progress, elsewhere), (other, _) = split(1, 4, 1), split(2, 4, 0, replica=0)
    rig.pieces.add((1,), engines[0], *elsewhere)
    fetched = moves.begin(engines[0], engines[0], (progress,), "", actions)
    sent = moves.begin(engines[0], engines[2], (other,), "", actions)
    assert (moves.staying, moves.sending, moves.all()) == ({1}, {0}, [fetched, sent])
    for move in moves.all():
        moves.abort(move, "", actions)
    assert (moves.staying, moves.sending, moves.all()) == (set(), set(), [])
    assert actions[2:] == [StopSend(0, ""), StopSend(1, "")]
    room = DecodeCapacity(HandOverRules(KvBytes(1), 8), 4)
    room.open(1, 64)
    room.begin_batch(1, 8, 1)
    room.close(1)
    room.lost(1)
    assert (room.least(), room.demands, room.reserved_requests, room.receiving) == (None, {}, {}, set())


def test_a_piece_is_not_at_its_home_and_has_neither_none_nor_all_of_the_layers() -> None:
    engines = Rig(["prefill", "prefill"]).engines
    for replica, first, last in ((0, 0, 1), (1, 0, LAYERS), (1, 3, LAYERS + 1)):
        with pytest.raises(AssertionError, match="is not split from replica 0"):
            Pieces(engines, KvBytes(KV_BYTES)).add((1,), engines[0], Piece(replica, LayerRange(first, last)))
    with pytest.raises(ValueError, match="empty"):
        LayerRange(0, 0)


# Laws

progresses = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 2), st.integers(1, 3)), min_size=1)


@given(progresses, st.integers(1, 7), st.randoms(use_true_random=False))
def test_pieces_sum_to_the_whole_in_any_order(
    drawn: list[tuple[int, int, int]], kv_bytes: int, random: Random
) -> None:
    """The home is 0, pieces lie at 1 and 2 (0: not split); the target 3 has none."""
    batch = [split(id, tokens, layers, replica) for id, (tokens, replica, layers) in enumerate(drawn)]
    sends = stage(batch, 3, kv_bytes)
    whole_bytes = kv_bytes * sum(tokens for tokens, _, _ in drawn)
    assert sum(size_bytes for _, _, size_bytes in sends) == whole_bytes
    assert sends[0][:2] == (0, tuple(range(len(batch))))
    random.shuffle(batch)
    again = stage(batch, 3, kv_bytes)
    assert {one[0]: one[2] for one in again} == {one[0]: one[2] for one in sends}
    at_home = stage(batch, 0, kv_bytes)
    assert sum(size_bytes for _, _, size_bytes in at_home) == whole_bytes - sends[0][2]


class Chance:
    """Passes, parts that come, steps, roles and losses by chance."""

    def __init__(self, random: Random) -> None:
        self.random = random
        roles: list[Role] = ["prefill", "decode", "prefill", "prefill", "decode", "prefill"]
        self.rig = Rig(roles, kv_blocks=random.choice([8, 16]))
        self.next_id = 0

    @property
    def alive(self) -> list[int]:
        return [number for number, one in self.rig.engines.items() if one.state is not EngineState.LOST]

    def act(self) -> None:
        kind = self.random.choice(["compute"] * 4 + ["come"] * 4 + ["step"] * 4 + ["switch_role", "close"])
        getattr(self, kind)()

    def compute(self) -> None:
        random, rig = self.random, self.rig
        source = random.choice(self.alive)
        prompts: list[Prompt] = []
        for _ in range(random.randint(1, 3)):
            tokens = random.randint(1, 20)
            others = [one for one in self.alive if one != source]
            giver = random.choice(others) if others and random.random() < 0.7 else None
            blocks = sum(-(-one // 4) for _, one, _ in prompts) + -(-tokens // 4)
            places = [source] if giver is None else [source, giver]
            if any(blocks > rig.engines[one].ledger.free_blocks - 2 for one in places):
                break
            elsewhere = None if giver is None else (giver, random.randint(1, LAYERS - 1))
            prompts.append((self.next_id, tokens, elsewhere))
            self.next_id += 1
        if prompts:
            rig.computed(source, *prompts, output=random.randint(2, 8))

    def come(self) -> None:
        if self.rig.pending:
            self.rig.sent(self.random.choice(self.rig.pending))

    def step(self, everybody: bool = False) -> None:
        running = [one for one in self.alive if self.rig.engines[one].state.name in ("RUNNING", "STOPPING")]
        for number in running if everybody else running[:1] and [self.random.choice(running)]:
            engine, run = self.rig.engines[number], self.rig.runs[number]
            decoding = [one for one in engine.running if engine.ledger.decodes(one)] if run.decode else []
            done = [one for one in decoding if everybody or self.ends(engine, one)]
            self.rig.step(number, tuple(sorted(done)))

    def ends(self, engine: Engine, id: int) -> bool:
        """Whether the next token is its last: by chance, or because it may have no more."""
        request = self.rig.requests[id]
        most = request.prompt_tokens + request.max_new_tokens
        return engine.ledger.context_tokens(id) + 1 >= most or self.random.random() < 0.3

    def switch_role(self) -> None:
        number = self.random.choice(self.alive)
        if number in self.rig.closed:
            self.rig.switch_role(number)

    def close(self) -> None:
        self.rig.close(self.random.choice(self.alive))

    def lose(self) -> None:
        self.rig.lose(self.random.choice(self.alive))


@given(st.integers(0, 1 << 48), st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=75)
def test_sums_hold_whatever_is_lost_and_nobody_waits_for_ever(seed: int, losses: list[int]) -> None:
    chance = Chance(Random(seed))
    rig = chance.rig
    for turn in range(60):
        for _ in range(losses.count(turn)):
            chance.lose()
        chance.act()
    if all(number in rig.closed for number in chance.alive):
        rig.switch_role(chance.random.choice(chance.alive))
    for _ in range(400):
        if not rig.requests:
            break
        chance.come()
        chance.step(everybody=True)
    assert rig.requests == {}
    assert free(rig) == [engine.ledger.total_blocks for engine in rig.engines.values()]
    assert (rig.hand_overs.migrating_tokens, rig.hand_overs.demand_tokens) == (0, 0)
