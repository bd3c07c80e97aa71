"""Stage replicas that work while they load: by the bytes that came, with losses, in drawn worlds."""

import pytest

from serving.protocols.stages import StartReplicas, StopReplicas
from serving.record.replay import replay
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.drawn_stages import check_order, drawn
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.stage_world import MS, StageCase, StageRun, controller_of, run

SECOND = 1000 * MS


def burst(live: bool, layers: int = 2) -> StageCase:
    """One stage of two layers of 2.4 GB, 5 s from disk; 40 requests at once take it 200 ms each."""
    times = [[200 * MS] * 40]
    return StageCase([0] * 40, times, ((0,),), elastic=True, layer_bytes=2_400_000_000, live=live)


def ends(found: StageRun) -> list[int]:
    return sorted(finish for _, _, _, finish, _ in found.recorder.done.values())


MORE = {1: (StartReplicas(0, 1, "more", (1,), "ssd"),)}


def test_what_loads_runs_the_first_layer_and_the_other_replica_the_second() -> None:
    """The first layer is there 2.5 s after the load began at 1 s; then a request takes half as long."""
    cold = ends(run(burst(False), scaler=Scripted(MORE), period_ns=SECOND))
    found = run(burst(True), scaler=Scripted(MORE), period_ns=SECOND)
    warm = ends(found)
    counts = [len([at for at in one if 4 * SECOND < at < 6 * SECOND]) for one in (cold, warm)]
    assert counts == [9, pytest.approx(18, abs=2)]
    assert max(warm) < max(cold)
    live = found.pipeline().live_stages
    assert live is not None and live.requests > 8 and not live.pairs
    assert sorted(row["request"] for row in found.log()) == list(range(40))


def test_a_load_that_is_given_up_leaves_nothing_behind() -> None:
    """What it had begun the other replica ends; then its GPU is free."""
    script = {**MORE, 5: (StopReplicas(0, (1,), "enough"),)}
    found = run(burst(True), scaler=Scripted(script), period_ns=SECOND)
    assert len(found.recorder.done) == 40
    assert found.pipeline().seats.used_bytes[1] == 0


@pytest.mark.parametrize("lost", [0, 1])
def test_what_is_lost_begins_again(lost: int) -> None:
    case = burst(True)
    script = {**MORE, 6: (StartReplicas(0, 1, "again", (2,), "ssd"),)}
    plan = FaultPlan(
        (Fault(4500 * MS, "replica", lost),), tuple((gpu,) for gpu in range(8)), ideal(case.cluster)
    )
    found = run(case, scaler=Scripted(script), period_ns=SECOND, faults=plan)
    assert len(found.recorder.done) == 40


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_drawn_worlds_with_a_scaler_that_says_anything(seed: int, losses: bool) -> None:
    world = drawn(seed, losses)
    for case in world.cases:
        case.elastic, case.layer_bytes, case.live, case.queues = True, 30_000_000, True, "stage"
    found = run(
        *world.cases, faults=world.plan if losses else None, scaler=AnythingGoes(seed), period_ns=3 * MS
    )
    fresh = controller_of(*world.cases, scaler=AnythingGoes(seed), period_ns=3 * MS)
    assert replay(found.journal(), fresh).first_difference is None
    for case in world.cases:
        check_order(case, found, losses)
    if not losses:
        assert len(found.recorder.done) == sum(len(case.arrivals_ns) for case in world.cases)
