"""What becomes of stages that scale when replicas, hosts, SSDs and links are lost."""

import pytest

from serving.elastic.stage_control import StageControl
from serving.elastic.stall_detection import STAGE_PATIENCE_NS, StageStalls
from serving.protocols.stages import KeepCopy, StartReplicas
from serving.services.pipeline.service import Pipeline
from serving.services.stages.stage import NOBODY, Waiting
from serving.vocabulary.errors import PolicyError, UserError
from simcore.faults.plan import Fault, FaultPlan
from simcore.simulation import NOBODY_LEFT
from tests.worlds.data_planes import ideal
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.stage_world import MS, StageCase, StageRun, controller_of, replicas_of, run

SECOND = 1000 * MS


class OneEach(AnythingGoes):
    """Starts a replica of each stage that has none, and does nothing else."""

    def __init__(self) -> None:
        super().__init__(0, until_ns=0)


def two_stages(requests: int = 20) -> StageCase:
    """On GPUs 0 and 1 of the first host; a request each second, 200 ms at each stage; stages of 2 GB."""
    times = [[200 * MS] * requests] * 2
    return StageCase([SECOND * n for n in range(requests)], times, ((0,), (1,)), 1_000_000, elastic=True)


def played(*faults: Fault, scaler: object = None, case: StageCase | None = None) -> StageRun:
    case = case or two_stages()
    plan = FaultPlan(faults, tuple(one.gpus for one in replicas_of(case)), ideal(case.cluster))
    return run(case, faults=plan, scaler=scaler or OneEach(), period_ns=SECOND)  # type: ignore[arg-type]


def acts(found: StageRun) -> list[str]:
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    return [one.act for one in control.replicas.history]


def test_a_lost_replica_is_replaced_and_what_it_ran_begins_again() -> None:
    found = played(Fault(5 * SECOND + 300 * MS, "replica", 1))
    assert acts(found) == ["lost", "load", "ready"]
    assert len(found.recorder.done) == 20 and not found.recorder.refusals
    assert [row["stage"] for row in found.log() if row["request"] == 5] == [0, 0, 1]


def test_replicas_of_a_lost_host_come_again_on_another_one() -> None:
    found = played(Fault(5 * SECOND + 300 * MS, "host", 0))
    assert sorted(acts(found)) == ["load", "load", "lost", "lost", "ready", "ready"]
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    assert {control.replicas.host_of(one) for one in control.replicas.states} == {1}
    assert not control.replicas.hosts.taken_cores[0]
    assert len(found.recorder.done) == 20


def test_a_load_from_a_lost_ssd_stops_and_comes_again_from_the_copy_of_the_host() -> None:
    """Host memory has the stage; its SSD is lost while the second replica comes from there."""
    more = {
        1: (KeepCopy(0, 0, "key"), StartReplicas(0, 1, "more", (2,), "ssd")),
        4: (StartReplicas(0, 1, "x"),),
    }
    found = played(Fault(2 * SECOND, "ssd", 0), scaler=Scripted(more))
    assert acts(found) == ["keep_copy", "load", "released", "load", "ready"]
    assert len(found.recorder.done) == 20


def test_a_cut_cable_of_the_only_nic_is_the_loss_of_the_host() -> None:
    found = played(Fault(5 * SECOND, "link", 0))
    assert acts(found).count("lost") == 2 and len(found.recorder.done) == 20


def test_a_stage_that_can_be_loaded_from_nowhere_ends_the_run_soon() -> None:
    lost = (Fault(3 * SECOND, "ssd", 0), Fault(3 * SECOND, "ssd", 1), Fault(4 * SECOND, "replica", 1))
    found = played(*lost)
    assert len(found.recorder.done) == 4
    assert set(found.recorder.refusals.values()) == {NOBODY_LEFT} and len(found.recorder.refusals) == 16
    # After the last arrival at 19 s: what the window has, and four looks.
    assert found.report.looks < 19 + 5 + 4 + 5


def test_a_scaler_that_does_not_say_how_long_it_remembers_has_an_hour() -> None:
    lost = (Fault(SECOND, "ssd", 0), Fault(SECOND, "ssd", 1), Fault(2 * SECOND, "replica", 1))
    found = played(*lost, scaler=Scripted({}), case=two_stages(3))
    assert found.report.looks == pytest.approx(STAGE_PATIENCE_NS / SECOND, abs=10)


def test_without_losses_a_world_that_stands_still_says_what_waits_where() -> None:
    case = two_stages(2)
    controller = controller_of(case, scaler=OneEach(), period_ns=SECOND)
    control = controller.elastic
    assert isinstance(control, StageControl)
    pipeline = controller.services["m"]
    assert isinstance(pipeline, Pipeline)
    for request, _ in case.requests():
        pipeline.stages[1].add(Waiting(request, NOBODY, 0))
    with pytest.raises(
        UserError, match=r"with 2 requests that can never be served: 2 requests wait for stage 1 of m, "
    ):
        raise StageStalls(control).error([request for request, _ in case.requests()])


@pytest.mark.parametrize("memory_s", [-1, float("inf"), "long", None])
def test_a_memory_is_a_length_of_time(memory_s: object) -> None:
    scaler = OneEach()
    scaler.memory_s = memory_s  # type: ignore[assignment]
    with pytest.raises(PolicyError, match=r"memory_s.*it must be seconds: a number of 0 or more"):
        played(Fault(SECOND, "replica", 0), scaler=scaler, case=two_stages(2))
