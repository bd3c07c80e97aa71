"""Every cell of the table of data-parallel groups is played, on two ranks of toy rows."""

from dataclasses import dataclass, field

import pytest
from simpy import Environment

from serving.vocabulary.actions import Interrupt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.request import Request
from simcore.lockstep.group import GroupState, LockstepGroup
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from tests.states.group_states import CELLS
from tests.worlds.naive_group import ToyExperts
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

ROWS = ToyRows(intercept=90 * NS, per_sequence=0, slope=0, mixed_intercept=90 * NS, per_token=0)
STEP_NS = 100  # with the experts
DUMMY = Run(1, 0, (), False, 1, True, "dummy step")


def prompt_run(request: int, rank: int) -> Run:
    return Run(rank, 0, ((request, 0, 4),), True, 50, False, "chunked")


@dataclass
class Rig:
    """Rank 0 has request 0, rank 1 has request 1 or none; ``answer``: what rank 0's engine wants next."""

    told: list[Ran] = field(default_factory=list)
    answer: Run | None = None

    def __post_init__(self) -> None:
        lives = {id: Lifetime(Request(id, 0, 4, 60, "m"), 60) for id in (0, 1)}
        self.machines = [Machine(rank, ROWS, lives, Collected()) for rank in (0, 1)]
        experts = ToyExperts(10 * NS, 0)
        self.group = LockstepGroup(
            self.machines,
            dummy_fixed=90 * NS,
            experts=experts,
            env=Environment(),
            timer_rank=4,
            tell=self.tell,
        )

    def tell(self, now_ns: int, report: Ran) -> None:
        self.told.append(report)
        if self.answer is not None:
            answer, self.answer = self.answer, None
            self.group.begin(now_ns, answer)

    def due(self, now_ns: int) -> None:
        pending = self.group._timer.pending
        if pending and pending[-1] <= now_ns:
            pending.pop()
        self.group.due(now_ns)

    @property
    def due_ns(self) -> int | None:
        pending = self.group._timer.pending
        return pending[-1] if pending else None


def rig_in(state: str) -> Rig:
    rig = Rig()
    if state == "stepping":
        rig.group.begin(0, prompt_run(0, 0))
        rig.answer = prompt_run(0, 0)
        rig.due(0)  # one step with the prompt
        rig.due(STEP_NS)  # and then its decode steps
        assert rig.due_ns == 50 * STEP_NS
    elif state == "boundary":
        rig.group.state = GroupState.BOUNDARY
    elif state == "lost":
        rig.group.lose(0)
    assert rig.group.state is GroupState[state.upper()]
    return rig


def play(rig: Rig, event: str) -> str:
    """Tell the group at 250 ns; returns what it did."""
    group, before, due_ns = rig.group, len(rig.told), rig.due_ns
    if event == "run requested":
        group.begin(250, prompt_run(1, 1))
        if rig.machines[1].run is not None:
            return "starts it"
    elif event == "dummy step requested":
        group.begin(250, DUMMY)
        group._plan()
        rig.due(group._due_fixed // NS)
        assert rig.told[before:] == [Ran(1, 0, 1, (), False, STEP_NS)]
        group.state = GroupState.BOUNDARY
        return "reports at the next boundary"
    elif event == "interrupt":
        group.interrupt(250, Interrupt(0, "arrival", 0))
    elif event == "due" and rig.machines[0].run is not None:
        group.interrupt(250, Interrupt(0, "arrival", 0))
        rig.answer = Run(0, 0, (), True, 9, False, "decode")
        rig.due(300)
        assert rig.told[before:] == [Ran(0, 0, 3, (), False, 200)]
        return "reports, steps begin"
    elif event == "due":
        if group.state is GroupState.PAUSED:
            group.begin(250, prompt_run(0, 0))
            rig.answer = prompt_run(0, 0)
        rig.due(250)
        if rig.told[before:]:
            assert rig.told[before:] == [Ran(0, 0, 0, (), False, 250)]
            assert rig.due_ns == 250 + STEP_NS
            return "reports, steps begin"
    else:
        group.lose(250)
        assert rig.due_ns is None
        return ""
    if rig.due_ns == due_ns:
        return ""
    return {250: "due now", 300: "due at the next boundary"}[rig.due_ns or 0]


@pytest.mark.parametrize(("state", "event"), [cell for cell, does in CELLS.items() if does != "-"])
def test_every_state_answers_every_event(state: str, event: str) -> None:
    rig = rig_in(state)
    does = play(rig, event)
    after = rig.group.state.name.lower()
    assert (f"{does}: {after}" if does else after) == CELLS[state, event]


def test_the_table_has_every_state() -> None:
    assert {state for state, _ in CELLS} == {state.name.lower() for state in GroupState}
