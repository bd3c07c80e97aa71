"""Every cell of the table of the global scheduler is played: exact actions, with it and without it."""

from typing import Any

import pytest

from policies.dispatch import LeastOutstanding
from serving.vocabulary.actions import Action, AllocateGpus, Assign, Load, Migrate, Send, Wake
from serving.vocabulary.events import Arrived, Lost, SchedulerBack, SchedulerLost
from serving.vocabulary.request import Request
from tests.states.scheduler_states import CELLS
from tests.worlds.elastic_world import Setting, Told
from tests.worlds.migration_rig import MigrationRig

LOST, BACK = SchedulerLost("gone"), SchedulerBack()
WHY = "without the global scheduler: its turn"


def rig_in(state: str, *, migrates: bool = False) -> MigrationRig:
    """Two instances that decode a request each. ``migrates``: the first stage of a migration is under way."""
    rig = MigrationRig(dispatcher=LeastOutstanding())
    if migrates:
        rig.look()
        rig.boundary()
        assert len(rig.sends) == 1
    if state == "lost":
        assert rig.tell(LOST) == []
    return rig


def arrive(rig: MigrationRig, *requests: int) -> list[Assign]:
    """Requests arrive one after the other: where they go."""
    actions = list[Action]()
    for request in requests:
        actions += rig.tell(Arrived(Request(request, rig.now_ns, 4, 8, "m")))
    return [action for action in actions if type(action) is Assign]


@pytest.mark.parametrize("state", ["working", "lost"])
def test_the_scheduler_is_lost_and_comes_back(state: str) -> None:
    for event, after in ((LOST, "lost"), (BACK, "working")):
        rig = rig_in(state)
        assert rig.tell(event) == []
        (assign,) = arrive(rig, 50)
        assert assign.reason.startswith("without the global scheduler") == (after == "lost")
        name = "scheduler lost" if event is LOST else "scheduler back"
        assert CELLS[state, name] == after


def test_requests_are_dispatched_by_the_policy_or_in_turn() -> None:
    assert CELLS["working", "request arrives"] == "dispatched by the policy: working"
    assert arrive(rig_in("working"), 50, 51, 52) == [
        Assign(50, 0, "1 outstanding"),
        Assign(51, 1, "1 outstanding"),
        Assign(52, 0, "2 outstanding"),
    ]
    assert CELLS["lost", "request arrives"] == "dispatched in turn: lost"
    assert arrive(rig_in("lost"), 50, 51, 52) == [Assign(50, 0, WHY), Assign(51, 1, WHY), Assign(52, 0, WHY)]


def test_without_the_scheduler_a_full_instance_has_its_turn_too() -> None:
    rig = rig_in("working")
    arrive(rig, 50, 51, 52)
    rig.tell(LOST)
    assert arrive(rig, 60) == [Assign(60, 0, WHY)]
    rig.tell(BACK)
    assert arrive(rig, 61) == [Assign(61, 1, "2 outstanding")]


def test_instances_that_are_lost_meanwhile_have_no_turn() -> None:
    rig = rig_in("lost")
    rig.tell(Lost(0, "gone"))
    assert arrive(rig, 50, 51) == [Assign(50, 1, WHY), Assign(51, 1, WHY)]


@pytest.mark.parametrize("state", ["working", "lost"])
def test_rounds_pair_instances_only_with_the_scheduler(state: str) -> None:
    rig = rig_in(state)
    rig.look()
    paired = rig.migration is not None
    assert paired == (state == "working")
    assert CELLS[state, "migration round"] == ("pairs instances: working" if paired else "-")
    assert any(type(one) is Wake for one in rig.actions), "the clock of rounds goes on"
    if not paired:
        rig.tell(BACK)
        rig.look()
        assert rig.migration is not None


@pytest.mark.parametrize("state", ["working", "lost"])
def test_a_migration_under_way_ends_as_with_the_scheduler(state: str) -> None:
    """Instances carry migrations out by themselves (section 4.3); the scheduler only begins them."""
    rig = rig_in(state, migrates=True)
    for _ in range(4):
        if rig.migration is not None:
            rig.come()
            rig.boundary()
    assert [(one.phase, one.target) for one in rig.history if type(one) is Migrate][-1] == ("committed", 1)
    assert rig.service.migrations.log.records[0].outcome == "committed"
    assert CELLS[state, "migration stage received"] == f"the migration continues: {state}"
    assert len([one for one in rig.history if type(one) is Send]) == 2


def kinds(actions: list[Action]) -> list[Any]:
    return [type(action) for action in actions]


def test_nothing_scales_without_the_scheduler() -> None:
    """A model without instances: its first request starts one, or waits until the scheduler decides again."""
    setting = Setting(start={"both": 0})
    working = Told(setting)
    assert {AllocateGpus, Load} <= set(kinds(working.arrive(0)))
    assert CELLS["working", "look of the load monitor"] == "scales: working"
    lost = Told(setting)
    assert lost.fact(LOST) == []
    assert kinds(lost.arrive(0)) == [Wake], "the load monitor's clock goes on"
    period_ns = lost.controller.elastic.ticks._period_ns  # type: ignore[attr-defined]
    for look in (1, 2, 3):
        assert lost.woke(look * period_ns) == [Wake((look + 1) * period_ns, "")]
    assert CELLS["lost", "look of the load monitor"] == "waits for the next look: lost"
    assert lost.fact(BACK) == []
    assert {AllocateGpus, Load} <= set(kinds(lost.woke(4 * period_ns)))


def test_a_pair_whose_migration_has_not_begun_is_given_up() -> None:
    """The scheduler has paired the instances; it is lost before both are at a step boundary."""
    rig = rig_in("working")
    rig.look()
    assert rig.migration is not None
    rig.tell(LOST)
    rig.boundary()
    assert rig.migration is None and not [one for one in rig.history if type(one) in (Migrate, Send)]
