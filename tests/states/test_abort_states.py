"""Every cell of the table of aborts is played through the controller: exact actions, no memory kept."""

import pytest

from serving.record.invariants import check
from serving.vocabulary.abort import AbortState
from serving.vocabulary.actions import Abort, Action, Assign, Fail, Interrupt, Send, StopSend
from serving.vocabulary.events import Arrived, Closing, Disconnected, Event, Lost, Ran, Sent
from serving.vocabulary.request import Request
from tests.states.abort_states import CELLS
from tests.worlds.elastic_world import MS, Setting, Told
from tests.worlds.migration_rig import WHO, MigrationRig
from tests.worlds.told_systems import both, prompt, static

LEAVES = Disconnected(0)


def _in_last_stage() -> MigrationRig:
    rig = MigrationRig()
    rig.look()
    rig.boundary()
    rig.come()
    rig.boundary()
    assert [one.id for one in rig.source.outgoing] == [WHO]
    return rig


class Case:
    """Request 0 in this state; a controller that is told facts."""

    def __init__(self, state: str) -> None:
        self.rig: Told | MigrationRig
        if state == "waits for an instance":
            self.rig = both(start=0)
            self.rig.arrive(0)
        elif "hand-over" in state or state == "held":
            self._split(state)
        elif "migration" in state:
            self.rig = _in_last_stage()
        else:
            self._together(state)
        if state in ("held", "leaving", "ended"):
            self.tell(LEAVES)
        if state == "ended":
            self.tell(Ran(0, 0, 1, ()))
        assert self.state() == {"held": "held", "leaving": "leaving", "ended": "ended"}.get(state, "")

    def _split(self, state: str) -> None:
        """A prefill instance has computed its prompt; without a decode instance its KV waits there."""
        self.rig = static(decode=0 if "waits" in state else 1)
        self.rig.arrive(0)
        self.rig.ran(0)

    def _together(self, state: str) -> None:
        """Instances that do both, with a request beside it; the first to arrive runs alone."""
        self.rig = Told(Setting(elastic=False, start={"both": 1}, coalesce=False))
        if state == "waits at an instance":
            self.rig.arrive(9)
        self.rig.arrive(0)
        if state not in ("waits at an instance", "computes its prompt"):
            self.rig.ran(0)
            self.rig.arrive(9)

    @property
    def controller(self):  # type: ignore[no-untyped-def]
        return self.rig.controller

    def tell(self, event: Event) -> list[Action]:
        if isinstance(self.rig, MigrationRig):
            return self.rig.tell(event)
        return self.rig.fact(event)

    def state(self) -> str:
        """In the words of the table; empty while its client waits."""
        if 0 not in self.controller.requests:
            return "ended"
        found = self.controller.aborts.leaving.get(0)
        return "" if found is None else {AbortState.HELD: "held", AbortState.LEAVING: "leaving"}[found]

    def play(self, state: str, event: str) -> str:
        if CELLS[state, event] == "-":
            return self._nothing(state, event)
        told: dict[str, Event] = {
            "its client leaves": LEAVES,
            "step boundary": Ran(0, 0, 1, ()),
            "it finishes": Ran(0, 0, 1, (0,)),
            "its KV arrives": Sent(0, 60, ""),
            "its instance lost": Lost(0, "gone"),
        }
        if (state, event) == ("held", "step boundary"):
            self.tell(Arrived(Request(9, 0, 6, 10, "m")))  # its instance computes another prompt meanwhile
        actions = self.tell(told[event])
        if event != "its KV arrives":  # else they are of its instance, and so its own
            actions = [action for action in actions if self._is_its_own(action)]
        names = ", ".join([type(action).__name__ for action in actions])
        return f"{names}: {self.state()}" if names else self.state()

    def _is_its_own(self, action: Action) -> bool:
        return getattr(action, "request", 0) == 0 and isinstance(action, Abort | Fail | Interrupt | StopSend)

    def _nothing(self, state: str, event: str) -> str:
        """The event cannot come, or changes nothing of the abort."""
        if state == "ended" and event == "its client leaves":
            assert self.tell(LEAVES) == [] and not self.controller.aborts.leaving
        elif event == "step boundary" and state == "decodes":
            actions = self.tell(Ran(0, 0, 1, ()))
            assert not [action for action in actions if isinstance(action, Abort)]
        return "-"


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(state, event) == CELLS[state, event]


@pytest.mark.parametrize("state", ["waits for an instance", "waits at an instance", "decodes"])
def test_nothing_of_it_is_left(state: str) -> None:
    case = Case(state)
    case.tell(LEAVES)
    if case.state() == "leaving":
        case.tell(Ran(0, 0, 1, ()))
    assert case.state() == "ended" and case.controller.aborted == 1
    assert not any(0 in engine.ledger.holders() for engine in case.controller.engines.values())


def test_an_abort_says_where_it_was_and_what_was_computed() -> None:
    told = Told(Setting(elastic=False, start={"both": 1}, coalesce=False))
    assert told.arrive(0) == [Assign(0, 0, ""), prompt(0, 0)]
    told.ran(0)
    assert told.fact(LEAVES) == [Interrupt(0, "")]
    assert told.ran(0) == [Abort(0, 0, 8, "")], "6 of its prompt and 2 of its output"
    waiting = both(start=0)
    waiting.arrive(0)
    assert waiting.fact(LEAVES) == [Abort(0, -1, 0, "")]


def test_who_waits_takes_the_memory_of_who_left() -> None:
    told = Told(Setting(elastic=False, start={"both": 1}, coalesce=False, kv_blocks=4))
    told.arrive(0, prompt=12, cap=4), told.arrive(1, prompt=12, cap=4)
    told.ran(0)
    assert 1 in [one.id for one in told.controller.engines[0].waiting]
    told.fact(LEAVES)
    assert told.ran(0) == [Abort(0, 0, 14, ""), prompt(0, 1, 12)]


def test_a_hand_over_under_way_ends_before_its_request_leaves() -> None:
    """The KV arrives, the request takes part in one step and leaves; the room of both instances is free."""
    told = static()
    told.arrive(0)
    told.ran(0)
    assert told.fact(LEAVES) == []
    told.sent(0)
    assert [one for one in told.ran(1) if isinstance(one, Abort)] == [Abort(0, 1, 8, "")]
    assert told.controller.services["m"].kv_tokens == 0
    assert all(not engine.ledger.holders() for engine in told.controller.engines.values())


def test_a_prompt_computed_for_a_client_that_left_is_not_handed_over() -> None:
    told = static()
    told.arrive(0)
    assert told.fact(LEAVES) == [Interrupt(0, "")]
    assert told.ran(0) == [Abort(0, 0, 7, "")], "6 of its prompt and the token that it gives"


def test_the_last_stage_of_a_migration_ends_before_its_request_leaves() -> None:
    case = Case("in the last stage of its migration")
    assert case.tell(LEAVES) == [] and case.state() == "held"
    assert isinstance(case.rig, MigrationRig)
    aborts = [one for one in case.rig.come() if isinstance(one, Abort)]
    assert [(one.request, one.replica) for one in aborts] == [(WHO, 1)], "before it decodes there"
    assert case.state() == "ended" and case.rig.migration is None


def test_a_migration_ends_with_its_request() -> None:
    rig = MigrationRig()
    rig.look()
    rig.boundary()
    assert len(rig.sends) == 1 and rig.migration is not None
    rig.tell(LEAVES)
    rig.step(0)
    assert rig.migration is None
    assert [record.outcome for record in rig.migrations.log.records] == ["client left"]
    assert not [one for one in rig.history[-3:] if isinstance(one, Send)]


def test_what_is_recomputed_elsewhere_leaves_there() -> None:
    rig = MigrationRig("recompute")
    rig.look()
    rig.boundary()
    rig.tell(LEAVES)
    for _ in range(2):
        rig.boundary()
    assert WHO not in rig.controller.requests and rig.migration is None


def test_the_end_of_a_run_ends_aborts_too() -> None:
    case = Case("leaving")
    case.tell(Closing("over"))
    assert case.controller.failed == 2 and not case.controller.aborts.leaving
    check(case.controller)


def test_a_service_of_stages_aborts_nothing() -> None:
    told = both(start=0, period_ns=100 * MS)
    told.arrive(0)
    told.controller.aborts._services = {}
    with pytest.raises(AssertionError, match="cannot be aborted"):
        told.fact(LEAVES)
