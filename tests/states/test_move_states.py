"""Every cell of the table of moves is played; stages, blocks and what is on the wire."""

import pytest

from serving.kv.moves import Move, MovePhase, Moves
from serving.kv.pieces import Piece
from serving.vocabulary.actions import Action, Send, StopSend
from serving.vocabulary.events import Sent
from serving.vocabulary.layers import LayerRange
from tests.states.move_states import CELLS
from tests.worlds.kv_rig import Rig

PROMPT = 8  # tokens, two blocks


class Case:
    """Request 1 is at replica 0, its first layer at 1, and moves to 2."""

    def __init__(self) -> None:
        self.rig = Rig(["prefill", "prefill", "prefill"])
        self.rig.computed(0, (1, PROMPT, (1, 1)))
        self.moves: Moves = self.rig.hand_overs.moves
        self.actions: list[Action] = []
        self.told: set[int] = set()
        (progress,) = self.rig.engines[0].outgoing
        self.move: Move = self.moves.reserve(self.rig.engines[0], self.rig.engines[2], (progress,))

    def send(self) -> None:
        self.moves.send(self.move, self.moves.whole_stage(0, 2, self.move.batch), "", self.actions)

    def ended(self, transfer: int, cause: str = "") -> Move | None:
        self.told.add(transfer)
        return self.moves.sent(Sent(transfer, 0, cause), self.actions)

    @property
    def free(self) -> list[int]:
        return [engine.ledger.free_blocks for engine in self.rig.engines.values()]

    @property
    def untold(self) -> list[int]:
        """Transfers that were begun, and whose end was not told."""
        return [
            one.transfer for one in self.actions if isinstance(one, Send) and one.transfer not in self.told
        ]


def case_in(phase: str) -> Case:
    case = Case()
    if phase == "sending":
        case.send()
    elif phase == "committed":
        case.send(), case.ended(0), case.ended(1)
        case.moves.commit(case.move)
    elif phase == "aborted":
        case.send()
        case.moves.abort(case.move, "", [])
    assert case.move.phase.name.lower() == phase
    return case


def play(case: Case, event: str) -> str:
    """What the code makes of the event, in the words of the table."""
    before = len(case.actions)
    if event == "send":
        case.send()
    elif event == "commit":
        case.moves.commit(case.move)
    elif event == "abort":
        case.moves.abort(case.move, "gone", case.actions)
    else:
        if not case.untold:
            return "-"
        if event == "the last transfer ended":
            case.ended(0)
        moved = case.ended(case.untold[0], "link gone" if "stopped" in event else "")
        if moved is None and case.move.phase is MovePhase.ABORTED:
            return "ignored"
    return outcome(case, case.actions[before:])


def outcome(case: Case, actions: list[Action]) -> str:
    after = case.move.phase.name.lower()
    if not actions:
        return after
    if isinstance(actions[0], Send):
        assert [one.source for one in actions if isinstance(one, Send)] == [0, 1]
        return f"{after}, with Send for each source"
    assert all(isinstance(one, StopSend) for one in actions)
    return f"{after}, with StopSend for open transfers"


@pytest.mark.parametrize(("phase", "event"), CELLS)
def test_every_phase_answers_every_event(phase: str, event: str) -> None:
    case = case_in(phase)
    if CELLS[phase, event] == "refused":
        with pytest.raises(AssertionError):
            play(case, event)
        assert case.move.phase.name.lower() == phase
        return
    assert play(case, event) == CELLS[phase, event]


def test_blocks_are_kept_at_the_target_from_the_reservation_to_the_abort() -> None:
    case = Case()
    assert case.free == [14, 14, 14]
    case.send()
    case.ended(1)
    case.moves.abort(case.move, "gone", case.actions)
    assert case.free == [14, 14, 16]
    assert case.actions[2:] == [StopSend(0, "gone")]


def test_a_commit_gives_back_the_blocks_of_source_and_pieces() -> None:
    case = case_in("committed")
    assert case.free == [16, 16, 14]
    assert not case.rig.pieces and case.moves.all() == []


def test_a_move_may_have_several_stages_before_it_is_committed() -> None:
    """As a request would that decodes while its KV moves: the rest is sent when the first stage has ended."""
    case = Case()
    first, second = case.moves.whole_stage(0, 2, case.move.batch)
    for transfer, stage in enumerate((first, second)):
        case.moves.send(case.move, (stage,), "", case.actions)
        assert case.moves.all() == [case.move] and case.move.phase is MovePhase.SENDING
        assert case.ended(transfer) is case.move and case.move.phase is MovePhase.RESERVED
    case.moves.commit(case.move)
    assert case.actions == [
        Send(0, "kv", (1,), 0, 2, 48, ""),
        Send(1, "kv", (1,), 1, 2, 16, ""),
    ]
    assert case.free == [16, 16, 14]


def test_layers_that_three_replicas_computed_are_one_move() -> None:
    """Layer 0 at replica 1, layers 1 and 2 at replica 3, the last at the home 0; to 2."""
    rig, actions = Rig(["prefill"] * 4), list[Action]()
    rig.computed(0, (1, PROMPT, (1, 1)))
    rig.engines[3].reserve(1, PROMPT)
    rig.pieces.add((1,), rig.engines[0], Piece(1, LayerRange(0, 1)), Piece(3, LayerRange(1, 3)))
    moves, (progress,) = rig.hand_overs.moves, rig.engines[0].outgoing
    move = moves.begin(rig.engines[0], rig.engines[2], (progress,), "", actions)
    assert actions == [
        Send(0, "kv", (1,), 0, 2, 16, ""),
        Send(1, "kv", (1,), 1, 2, 16, ""),
        Send(2, "kv", (1,), 3, 2, 32, ""),
    ]
    assert moves.senders() == {0, 1, 3}
    assert [moves.sent(Sent(one, 0, ""), actions) for one in (2, 0, 1)] == [None, None, move]
    assert [engine.id for engine in moves.commit(move)] == [1, 3]
    assert [engine.ledger.free_blocks for engine in rig.engines.values()] == [16, 16, 14, 16]
