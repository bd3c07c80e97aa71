"""A rank that is lost takes its data-parallel group with it; the other groups go on."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.composition import ServiceOptions
from serving.engine.pool import EngineOptions
from serving.services.colocated.service import Queue
from simcore.faults.plan import Fault, FaultPlan
from simcore.lockstep.group import GroupState
from simcore.lockstep.groups import GroupPlan
from simcore.simulation import Simulation
from tests.worlds.faulted import Ends
from tests.worlds.naive_engine import Case
from tests.worlds.naive_group import ToyExperts
from tests.worlds.strategies import NS, cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, controller_of, requests_of

GROUPS = ((0, 1), (2, 3))
EXPERTS = ToyExperts(5 * NS, NS)


def lose(
    case: Case, faults: list[Fault], coalesce: bool = True, queue: Queue | None = None
) -> tuple[Ends, Simulation]:
    options = EngineOptions(coalesce=coalesce, asynchronous=case.asynchronous, lockstep=True)
    checked = Checked(controller_of(case, options=options, service_options=ServiceOptions(queue=queue)))
    plans = [GroupPlan(ranks, case.rows, EXPERTS) for ranks in GROUPS]
    losses = FaultPlan(faults, [(rank,) for rank in range(4)], None, GROUPS)
    ends, rows = Ends(), [case.rows] * 4
    simulation = Simulation(checked, requests_of(case), rows, ends, faults=losses, groups=plans)
    simulation.run()
    return ends, simulation


def test_all_ranks_of_a_group_are_lost_with_one_and_say_why() -> None:
    requests = tuple((10 * id, 8, 40, 64) for id in range(8))
    rows = ToyRows(90 * NS, NS, NS, 90 * NS, NS)
    case = Case("chunked", 4, 4, 40, 0, 8, 64, "round_robin", requests, rows, asynchronous=True)
    ends, simulation = lose(case, [Fault(1000, "replica", 1), Fault(2000, "replica", 0)])
    assert simulation.losses is not None
    first, second = simulation.losses.records
    assert first.replicas == (0, 1)
    assert second.nothing == "replica 0 does not exist now or was lost before"
    cause = "replica 1 failed, and the other ranks of its data-parallel group with it"
    assert ends.lost == dict.fromkeys([0, 1, 4, 5], cause)
    assert sorted(ends.finished_ids) == [2, 3, 6, 7]
    assert [group.state for group in simulation.groups.groups] == [GroupState.LOST, GroupState.PAUSED]


@pytest.mark.parametrize("queue", [None, "per_instance"])
@given(
    case=cases(),
    faults=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=3),
)
@settings(max_examples=30)
def test_every_request_ends_once_whatever_ranks_are_lost(
    queue: Queue | None, case: Case, faults: list[tuple[int, int]]
) -> None:
    case = replace(case, replicas=4)
    planned = [Fault(at_ns, "replica", rank) for at_ns, rank in sorted(faults)]
    ends, simulation = lose(case, planned, queue=queue)
    ways = [*ends.finished_ids, *ends.rejected, *ends.lost]
    assert sorted(ways) == list(range(len(case.requests)))
    assert all(ends.lost.values())
    alone, _ = lose(case, planned, coalesce=False, queue=queue)
    assert (alone.finished_ids, alone.lost) == (ends.finished_ids, ends.lost)
    lost = {rank for loss in simulation.losses.records for rank in loss.replicas}  # type: ignore[union-attr]
    assert all(len(lost & set(ranks)) in (0, 2) for ranks in GROUPS)
