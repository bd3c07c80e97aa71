"""Every cell of the table of a request at a stock engine, played against the code."""

import pytest

from serving.record.invariants import check
from serving.vocabulary.events import Dropped, Lost, Opened, Streamed, Woke
from tests.states.stock_request_states import CELLS
from tests.worlds.stock_rig import StockRig

ID = 7


class Case:
    """Request 7 at engine 0 of two, in a state."""

    def __init__(self, state: str) -> None:
        self.rig = StockRig()
        self.rig.handle(Opened())
        self.rig.arrive(ID)
        if state in ("running", "moved"):
            self.rig.handle(Streamed(0, ((ID, 1),), ()))
        if state == "moved":
            self.play("paired as a source")
        if state == "over":
            self.rig.handle(Streamed(0, ((ID, 3),), (ID,)))
        self.rig.migrator.pairs = []

    @property
    def here(self) -> int:
        found = self.rig.stock.stock.requests.get(ID)
        return 0 if found is None else found.replica

    def state(self) -> str:
        one = self.rig.stock.stock.requests.get(ID)
        if one is None:
            return "over"
        if one.began:
            return "running"
        return "moved" if ID in self.rig.stock._view.moving else "sent"

    def play(self, event: str) -> str:
        """What the code makes of it, in the words of the table."""
        here, told = self.here, list[str]()
        other = 1 - here
        try:
            if event == "tokens received":
                told = self.rig.handle(Streamed(here, ((ID, 2),), ()))
            elif event == "last token received":
                told = self.rig.handle(Streamed(here, ((ID, 1),), (ID,)))
            elif event == "refused":
                told = self.rig.handle(Dropped(here, ID, True, "400"))
            elif event == "connection closed":
                told = self.rig.handle(Dropped(here, ID, False, "reset"))
            elif event == "connection closed three times":
                told = [one for _ in range(3) for one in self.rig.handle(Dropped(self.here, ID, False, "x"))]
            elif event == "engine lost":
                told = self.rig.handle(Lost(here, "killed"))
            elif event == "other engine lost":
                told = self.rig.handle(Lost(other, "killed"))
            elif self.state() == "moved":
                return "-"
            else:
                self.rig.migrator.pairs = [(here, other)]
                told = [one for one in self.rig.handle(Woke()) if one != "Wake"]
        except (KeyError, AssertionError):
            return "refused"
        check(self.rig.controller)
        return f"{', '.join(told)}: {self.state()}" if told else self.state()


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]
