"""Every cell of the table of a request at stock engines that prefill or decode, played against the code."""

import pytest

from serving.record.invariants import check
from serving.services.stock.handover import HandOverParts
from serving.vocabulary.events import Dropped, Event, Lost, Sent, Streamed
from serving.vocabulary.kv_bytes import KvBytes
from tests.states.stock_handover_states import CELLS
from tests.worlds.stock_rig import StockRig

ID = 7


class Case:
    """Request 7 in a state: engines 0 and 1 prefill, 2 and 3 decode; its transfer is number 0."""

    def __init__(self, state: str) -> None:
        self.rig = StockRig(4, hand_over=HandOverParts(KvBytes(4)))
        self.rig.arrive(ID)
        if state != "prefills":
            self.rig.handle(Streamed(0, ((ID, 1),), ()))
        if state in ("decodes", "over"):
            self.rig.handle(Sent(0, 128, ""))
            self.rig.handle(Streamed(2, ((ID, 1),), (ID,) if state == "over" else ()))

    def state(self) -> str:
        one, hand_overs = self.rig.stock.stock.requests.get(ID), self.rig.stock.hand_overs
        assert hand_overs is not None
        if one is None:
            return "over"
        if hand_overs.prefills(one.replica):
            return "prefills"
        return "KV in transfer" if ID in hand_overs.on_the_way else "decodes"

    def events(self, name: str) -> list[Event] | None:
        """None: it cannot happen there."""
        state = self.state()
        here = 0 if state == "prefills" else 2
        if name in ("tokens received", "last token received"):
            return None if state == "KV in transfer" else [Streamed(here, ((ID, 1),), _ended(name))]
        if name in ("KV received", "KV transfer failed"):
            cause = "" if name == "KV received" else "reset"
            told: list[Event] = [Sent(0, 0 if cause else 128, cause)]
            if cause:
                told.append(Dropped(2, ID, False, cause))
            return None if state == "prefills" else told
        if name == "its target lost":
            return None if state == "prefills" else [Lost(2, "killed")]
        found: dict[str, list[Event]] = {
            "connection closed": [Dropped(here, ID, False, "reset")],
            "its source lost": [Lost(0, "killed")],
            "both sources lost": [Lost(0, "killed"), Lost(1, "killed")],
            "both targets lost": [Lost(2, "killed"), Lost(3, "killed")],
        }
        return found[name]

    def play(self, name: str) -> str:
        """What the code makes of it, in the words of the table."""
        told, events = list[str](), self.events(name)
        if events is None:
            return "-"
        try:
            for event in events:
                told += self.rig.handle(event)
        except (KeyError, AssertionError):
            return "refused"
        check(self.rig.controller)
        return f"{', '.join(told)}: {self.state()}" if told else self.state()


def _ended(name: str) -> tuple[int, ...]:
    return (ID,) if name == "last token received" else ()


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]
