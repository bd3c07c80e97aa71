"""Every cell of the table of hand-overs is played with real engines, all sums checked after each event."""

import pytest

from serving.vocabulary.actions import Action, Send, StopSend
from tests.states.handover_states import CELLS
from tests.worlds.kv_rig import Prompt, Rig

SOURCE, PIECE, TARGET = 0, 1, 2
WHOLE: Prompt = (7, 4, None)
SPLIT: Prompt = (7, 4, (PIECE, 1))
OTHER: Prompt = (8, 4, (PIECE, 1))


class Case:
    """Request 7 in this state: its source is replica 0, pieces lie at 1, and only 2 decodes, if anybody."""

    def __init__(self, state: str) -> None:
        moves = state.startswith("in transfer") or state == "at the target"
        stays = state.startswith("stays")
        self.rig = Rig(["decode" if stays else "prefill", "prefill", "decode" if moves else "prefill"])
        if state in ("in transfer", "in transfer beside a split request"):
            batch = (WHOLE, OTHER) if "beside" in state else (WHOLE,)
        else:
            batch = (SPLIT,)
        sends = [one for one in self.rig.computed(SOURCE, *batch) if isinstance(one, Send)]
        self.transfers = [one.transfer for one in sends]
        self.target = SOURCE if stays else TARGET
        if state == "at the target":
            for transfer in self.transfers:
                self.ended(transfer)

    def ended(self, transfer: int, cause: str = "") -> list[Action]:
        self.rig.hand_overs.moves.transfer_ids.model_of(transfer)
        return self.rig.sent(transfer, cause)[1]

    def play(self, event: str) -> str:
        """What the code makes of the event, in the words of the table."""
        lost = {"source lost": SOURCE, "target lost": self.target, "replica of a piece lost": PIECE}
        if event in lost:
            return self.outcome(*self.rig.lose(lost[event]))
        if not self.transfers or (event == "a transfer ended" and len(self.transfers) == 1):
            return "-"
        actions: list[Action] = []
        try:
            if event == "the last transfer ended":
                for transfer in self.transfers:
                    actions = self.ended(transfer)
            else:
                actions = self.ended(self.transfers[0], "link gone" if "stopped" in event else "")
        except KeyError:  # the controller asks whose it was, and nobody's end is told twice
            return "refused"
        return self.outcome([], actions)

    def outcome(self, failed: list[int], actions: list[Action]) -> str:
        engines, moves = self.rig.engines, self.rig.hand_overs.moves
        waits = 7 in [one.id for one in engines[SOURCE].outgoing]
        moving = any(7 in move.ids for move in moves.all())
        decodes = 7 in [*engines[self.target].running, *(one.id for one in engines[self.target].attached)]
        assert (7 in failed) + waits + decodes == 1
        assert waits or not moving
        again = any(isinstance(one, Send) and 7 in one.requests for one in actions)
        stopped = any(isinstance(one, StopSend) for one in actions)
        if 7 in failed:
            found = "fails"
        elif decodes:
            found = "decodes at the target"
        elif moving:
            found = "in transfer again" if again else "in transfer"
        else:
            found = "waits at the source"
        return found + (", its transfers are stopped" if stopped else "")


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]


def test_what_the_world_stopped_is_sent_again_and_blocks_are_kept_once() -> None:
    case = Case("in transfer, split")
    assert case.ended(1, "link gone") == [
        StopSend(0, ""),
        Send(2, "kv", (7,), 0, 2, 24, ""),
        Send(3, "kv", (7,), 1, 2, 8, ""),
    ]
    assert case.ended(0, "stopped") == []  # the answer to StopSend
    assert [engine.ledger.free_blocks for engine in case.rig.engines.values()] == [15, 15, 15]
    assert case.ended(3) == [] and len(case.ended(2)) == 1
    assert [engine.ledger.free_blocks for engine in case.rig.engines.values()] == [16, 16, 15]


def test_a_target_that_is_lost_after_its_flows_have_ended_is_not_sent_to_again() -> None:
    """The world ends the flow first: it is sent again, for the loss is not known yet, and stopped."""
    case = Case("in transfer")
    (again,) = case.ended(0, "host gone")
    assert again == Send(1, "kv", (7,), 0, 2, 32, "")
    assert case.rig.lose(TARGET) == ([], [StopSend(1, "")])
    assert case.ended(1, "stopped") == []
    assert case.rig.switch_role(PIECE) == [Send(2, "kv", (7,), 0, 1, 32, "")]
