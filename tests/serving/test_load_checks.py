"""Invariant 14: load reports are those of the requests at the engines; who breaks one is named by it."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.composition import ServiceOptions
from serving.controller import Controller
from serving.engine.instance_load import InstanceLoad
from serving.protocols.load_report import LoadReport
from serving.record.invariants import InvariantError, check
from serving.services.colocated.service import Colocated
from serving.vocabulary.events import Arrived, Ran
from serving.vocabulary.request import Request
from simcore.simulation import Simulation
from tests.worlds.migrating_cases import KINDS_OF_REPORTS
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, controller_of, requests_of

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)
CASE = Case("prefill_first", 1, 4, 40, 1, 2, 32, "round_robin", ((0, 8, 30, 30),), ROWS, priorities=(1,))


def with_reports(case: Case, at: str, coalesce: bool = True) -> Controller:
    return controller_of(case, coalesce, service_options=ServiceOptions(reports_period_ns=20, reports_at=at))  # type: ignore[arg-type]


def busy(at: str) -> Controller:
    """Two requests of high priority decode on the instance, two more wait for a place in its batch."""
    controller = with_reports(CASE, at)
    for id in range(2):
        controller.handle(0, Arrived(Request(id, 0, 8, 30, "m", 1)))
    controller.handle(1, Ran(0, 0, 1, ()))
    for id in range(2, 4):
        controller.handle(2, Arrived(Request(id, 2, 9, 30, "m")))
    controller.handle(3, Ran(0, 0, 1, ()))
    controller.handle(4, Ran(0, 0, 1, ()))
    check(controller)
    return controller


def known_of(controller: Controller) -> InstanceLoad:
    (service,) = controller.services.values()
    assert isinstance(service, Colocated) and service.fleet.reports is not None
    known = service.fleet.reports.known(0)
    assert known is not None
    if known.report is None:
        service.fleet.reports.of(0)
    return known


def change(known: InstanceLoad, **fields: int) -> None:
    """The latest report that was made."""
    report: LoadReport | None = known.coming or known.report
    assert report is not None
    changed = report._replace(**fields)
    if known.coming is not None:
        known.coming = changed
    else:
        known.report = changed


def count_one_of_high_priority_twice(known: InstanceLoad) -> None:
    known.high_now += 1


def forget_who_runs(known: InstanceLoad) -> None:
    known.running -= 1


def let_somebody_wait_who_is_not_there(known: InstanceLoad) -> None:
    known.waiting += 1


def tell_more_free_blocks_than_there_are(known: InstanceLoad) -> None:
    change(known, free_blocks=41)


def tell_another_demand_of_the_head(known: InstanceLoad) -> None:
    change(known, first_waiting_tokens=8)


def tell_another_demand_of_all(known: InstanceLoad) -> None:
    change(known, waiting_tokens=9)


def take_who_waits_for_preempted(known: InstanceLoad) -> None:
    change(known, preempted=1)


def tell_high_priority_of_who_has_none(known: InstanceLoad) -> None:
    change(known, high_waiting=1)


DAMAGES = (
    count_one_of_high_priority_twice, forget_who_runs, let_somebody_wait_who_is_not_there,
    tell_more_free_blocks_than_there_are, tell_another_demand_of_the_head, tell_another_demand_of_all,
    take_who_waits_for_preempted, tell_high_priority_of_who_has_none,
)  # fmt: skip


@pytest.mark.parametrize("at", ["changes", "step_ends"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_invariant_14_names_reports_that_are_not_of_the_requests(
    damage: Callable[[InstanceLoad], None], at: str
) -> None:
    controller = busy(at)
    known = known_of(controller)
    assert known.waiting == 2 and known.running == 2 and known.high_now == 2
    damage(known)
    with pytest.raises(InvariantError, match=r"^invariant 14: "):
        check(controller)


def test_invariant_14_names_free_blocks_that_are_told_wrongly_at_the_end_of_a_step() -> None:
    controller = busy("step_ends")
    controller.handle(5, Ran(0, 0, 1, (0,)))
    known = known_of(controller)
    assert known.coming is not None
    check(controller)
    change(known, free_blocks=known.coming.free_blocks - 1)
    with pytest.raises(InvariantError, match=r"^invariant 14: .* blocks are free"):
        check(controller)


@given(cases(), st.sampled_from(KINDS_OF_REPORTS), st.booleans())
@settings(max_examples=30)
def test_invariant_14_holds_after_every_event(case: Case, kind: tuple[bool, str], coalesce: bool) -> None:
    """Whenever instances tell; where nobody migrates free blocks are compared too."""
    at = "changes" if kind[1] == "step_ends" and case.asynchronous else kind[1]
    checked = Checked(with_reports(case, at, coalesce))
    Simulation(checked, requests_of(case), [case.rows] * case.replicas, Collected()).run()  # type: ignore[arg-type]
