"""Replicas of stages that come and go: loads by bytes, drains, cores, copies, and drawn worlds."""

import pytest

from serving.elastic.stage_control import NO_REPLICA, StageControl
from serving.protocols.stages import EvictCopy, KeepCopy, SetBatch, SetCores, StartReplicas, StopReplicas
from serving.record.replay import replay
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.drawn_stages import CLUSTER, check_order, drawn
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.stage_world import MS, StageCase, StageRun, controller_of, replicas_of, run

SECOND = 1000 * MS


def control_of(found: StageRun) -> StageControl:
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    return control


def history(found: StageRun) -> list[tuple[float, str, int]]:
    """What became of replicas."""
    every = control_of(found).replicas.history
    return [(one.now_ns / 1e9, one.act, one.replica) for one in every if one.act not in NO_REPLICA]


def busy(requests: int = 120, layer_bytes: int = 2_700_000_000) -> StageCase:
    """One stage of 5.4 GB with more than it can do: a request each 100 ms, 200 ms each."""
    times = [[200 * MS] * requests]
    return StageCase(
        [100 * MS * n for n in range(requests)], times, ((0,),), elastic=True, layer_bytes=layer_bytes
    )


def test_a_stage_from_host_memory_takes_its_bytes_over_pcie() -> None:
    scaler = Scripted({1: (KeepCopy(0, 0, "key"),), 2: (StartReplicas(0, 1, "more", (1,), "host"),)})
    told = history(run(busy(), scaler=scaler, period_ns=SECOND))
    assert [one[1:] for one in told] == [("load", 1), ("ready", 1)]
    assert told[1][0] - told[0][0] == pytest.approx(0.8, rel=0.10)


def test_an_evicted_copy_keeps_its_memory_until_who_reads_it_has_ended() -> None:
    """Looks 0.3 s apart: a load from 0.6 s to 1.4 s reads it, and it is evicted at 0.9 s."""
    scaler = Scripted(
        {
            1: (KeepCopy(0, 0, "key"),),
            2: (StartReplicas(0, 1, "more", (1,), "host"),),
            3: (EvictCopy("m", 0, 0, "full"),),
        }
    )
    found = run(busy(), scaler=scaler, period_ns=300 * MS)
    seen = [(len(view.hosts[0].copies), view.hosts[0].used_bytes) for view in scaler.views[:6]]
    assert seen == [(0, 0), (1, 5_400_000_000), (1, 5_400_000_000), (0, 5_400_000_000), (0, 0), (0, 0)]
    assert [copy.in_use for view in scaler.views[:3] for copy in view.hosts[0].copies] == [False, True]
    told = [(one.act, one.reason) for one in control_of(found).replicas.history if one.act in NO_REPLICA]
    assert told == [("keep_copy", "stage 0 on host 0: key"), ("evict_copy", "stage 0 on host 0: full")]


@pytest.mark.parametrize("again_at", [4, 6])
def test_a_copy_that_is_still_read_can_be_kept_again(again_at: int) -> None:
    scaler = Scripted(
        {
            1: (KeepCopy(0, 0, "key"),),
            2: (StartReplicas(0, 1, "more", (1,), "host"),),
            3: (EvictCopy("m", 0, 0, "full"),),
            again_at: (KeepCopy(0, 0, "key"),),
        }
    )
    run(busy(), scaler=scaler, period_ns=300 * MS)
    assert scaler.views[again_at].hosts[0].used_bytes == 5_400_000_000
    assert len(scaler.views[again_at].hosts[0].copies) == 1


def test_a_model_of_43_gb_from_disk_takes_45_s() -> None:
    whole = StageCase([0, 60 * SECOND], [[MS] * 2], ((0,),), elastic=True, layer_bytes=21_500_000_000 // 2)
    halves = StageCase([0, 60 * SECOND], [[MS] * 2] * 2, ((0,), (3,)), elastic=True,
                       layer_bytes=10_750_000_000)  # fmt: skip
    # Its two halves of 21.5 GB share the host's disk.
    both = tuple(StartReplicas(stage, 1, "more", (1 + stage,), "ssd") for stage in (0, 1))
    told = history(run(halves, scaler=Scripted({1: both}), period_ns=SECOND))
    ready = [at_s for at_s, act, _ in told if act == "ready"]
    assert max(ready) - told[0][0] == pytest.approx(45, rel=0.05)
    alone = history(run(whole, scaler=Scripted({1: both[:1]}), period_ns=SECOND))
    # The second of its two layers goes on over PCIe when the disk is done with it.
    assert alone[1][0] - alone[0][0] == pytest.approx(21.5 / 0.96 + 10.75 / 6.7, rel=0.01)


def test_a_new_replica_takes_from_the_queue_and_a_stopped_one_ends_its_pass() -> None:
    scaler = Scripted(
        {1: (StartReplicas(0, 1, "more", (1,)),), 9: (StopReplicas(0, (1,), "enough"),)}
    )  # from disk: 5.6 s
    found = run(busy(), scaler=scaler, period_ns=SECOND)
    told = history(found)
    assert [act for _, act, _ in told] == ["load", "ready", "drain", "released"]
    served = [row for row in found.log() if row["replica"] == 1]
    assert served and told[1][0] * 1e9 <= served[0]["began_ns"]
    assert max(row["ended_ns"] for row in served) == told[3][0] * 1e9
    assert len(found.recorder.done) == 120


def test_what_loads_is_given_up_when_it_is_stopped() -> None:
    scaler = Scripted({1: (StartReplicas(0, 1, "more", (1,)),), 3: (StopReplicas(0, (1,), "enough"),)})
    found = run(busy(), scaler=scaler, period_ns=SECOND)
    assert [act for _, act, _ in history(found)] == ["load", "drain", "released"]
    assert found.pipeline().seats.used_bytes[1] == 0


def test_cores_count_from_the_next_pass_on() -> None:
    one = StageCase([0, 2 * SECOND], [[400 * MS] * 2], ((0,),), elastic=True, cpu_parts=512)
    found = run(one, scaler=Scripted({1: (SetCores(0, (0,), 4, "faster"),)}), period_ns=SECOND)
    took = [row["ended_ns"] - row["began_ns"] for row in found.log()]
    assert took == [400 * MS, 300 * MS]


def test_a_replica_takes_as_many_as_its_own_batch_allows() -> None:
    """Eight wait: four of a batch of four, then two and two."""
    one = StageCase([0] * 9, [[600 * MS] * 9], ((0,),), batch=4, elastic=True)
    scaler = Scripted({1: (SetBatch(0, (0,), 2, "half"),)})
    found = run(one, scaler=scaler, period_ns=SECOND)
    began = [row["began_ns"] for row in found.log()]
    sizes = [began.count(moment) for moment in dict.fromkeys(began)]
    assert sizes[0] in (1, 4) and max(sizes[:2]) == 4 and max(sizes[2:]) == 2
    assert scaler.views[0].batch == 4 and scaler.views[1].stages[0].replicas[0].most == 2


def test_a_view_has_rates_queue_delay_and_resources() -> None:
    scaler = Scripted({2: (KeepCopy(0, 0, "key"),), 4: (EvictCopy("m", 0, 0, "full"),)})
    run(busy(60), scaler=scaler, period_ns=SECOND)
    first, third, fifth = scaler.views[0], scaler.views[2], scaler.views[4]
    (stage,) = first.stages
    assert stage.arrival_per_s == pytest.approx(10, rel=0.11) and stage.arrival_cv == pytest.approx(0)
    assert stage.service_s == pytest.approx(0.2) and stage.queued == 6 and stage.supply == 1
    assert stage.delay_s is not None and stage.delay_s > 0.2
    assert [(one.model, one.stage) for one in third.hosts[0].copies] == [("m", 0)]
    assert third.hosts[0].used_bytes == stage.bytes == 5_400_000_000 and not fifth.hosts[0].copies
    assert first.hosts[0].free_cores == 106 and first.hosts[0].gpus[0].replicas == 1
    assert len(first.hosts) == 2


def test_no_copy_and_no_room_are_told_as_shortages() -> None:
    full = StageCase([0, SECOND * 3], [[MS] * 2], ((0,),), elastic=True, layer_bytes=18_000_000_000)
    told = history(run(full, scaler=Scripted({1: (StartReplicas(0, 4, "x"),) * 1}), period_ns=SECOND))
    assert [act for _, act, _ in told if act == "load"] == ["load"] * 4
    lost = FaultPlan((Fault(0, "ssd", 0), Fault(0, "ssd", 1)), tuple(one.gpus for one in replicas_of(full)),
                     ideal(full.cluster))  # fmt: skip
    found = run(full, scaler=Scripted({1: (StartReplicas(0, 1, "x"),)}), period_ns=SECOND, faults=lost)
    assert [act for _, act, _ in history(found)] == ["shortage"]


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_drawn_worlds_with_a_scaler_that_says_anything(seed: int, losses: bool) -> None:
    world = drawn(seed, losses)
    for case in world.cases:
        case.elastic, case.layer_bytes = True, 30_000_000
    plan = world.plan if losses else None
    found = run(*world.cases, faults=plan, scaler=AnythingGoes(seed), period_ns=3 * MS)
    fresh = controller_of(*world.cases, scaler=AnythingGoes(seed), period_ns=3 * MS)
    assert replay(found.journal(), fresh).first_difference is None
    for case in world.cases:
        check_order(case, found, losses)
    if not losses:
        assert len(found.recorder.done) == sum(len(case.arrivals_ns) for case in world.cases)
    control = control_of(found).replicas
    assert all(cores >= 0 for cores in control.hosts.taken_cores.values())
    taken = sum(control.cores_of(replica) for replica in control.states)
    assert sum(control.hosts.taken_cores.values()) == taken
    assert world.cases[0].cluster == CLUSTER
