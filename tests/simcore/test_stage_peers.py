"""Stages that come from replicas which have the same stage, as a provisioner plans it."""

import pytest

from policies.provisioning import NetworkProvisioner
from serving.elastic.stage_control import StageControl
from serving.protocols.stages import StartReplicas, StopReplicas
from serving.record.replay import replay
from serving.vocabulary.errors import PolicyError
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.drawn_stages import check_order, drawn
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.stage_world import MS, StageCase, StageRun, controller_of, replicas_of, run

SECOND = 1000 * MS
MORE = StartReplicas(0, 1, "more", (4,))  # on the other host


def busy(requests: int = 120) -> StageCase:
    """One stage of 5.4 GB on GPU 0; a request each 100 ms, 200 ms each."""
    times = [[200 * MS] * requests]
    return StageCase(
        [100 * MS * n for n in range(requests)], times, ((0,),), elastic=True, layer_bytes=2_700_000_000
    )


def played(script: dict[int, tuple], *faults: Fault) -> StageRun:  # type: ignore[type-arg]
    plan = FaultPlan(faults, ((0,),), ideal("quart_2x4")) if faults else None
    scaler = Scripted(script)
    return run(busy(), faults=plan, scaler=scaler, period_ns=SECOND, provisioner=NetworkProvisioner())


def told(found: StageRun) -> list[tuple[float, str, int]]:
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    return [(one.now_ns / 1e9, one.act, one.replica) for one in control.replicas.history]


def took_s(found: StageRun, replica: int) -> float:
    times = {act: at_s for at_s, act, one in told(found) if one == replica}
    return times["ready"] - times["load"]


def test_a_stage_of_another_host_comes_over_the_network_in_its_bytes() -> None:
    """6.7 GB/s is a GPU's way to the NIC; from the SSD it takes 5.6 s and 0.8."""
    assert took_s(played({1: (MORE,)}), 1) == pytest.approx(5.4 / 6.7, rel=0.02)


def test_a_chain_serves_several_at_once() -> None:
    """GPU 1 beside the holder, GPUs 4 and 5 of the other host: none waits for an SSD."""
    found = played({1: (StartReplicas(0, 3, "more", (1, 4, 5)),)})
    assert [act for _, act, _ in told(found)].count("ready") == 3
    assert max(took_s(found, one) for one in (1, 2, 3)) < 2 * 5.4 / 6.7
    assert len(found.recorder.done) == 120


def test_who_sends_goes_when_it_has_sent() -> None:
    """Replica 0 is stopped while replica 1 loads from it: its GPU is free when that load has ended."""
    first = StartReplicas(0, 1, "more", (1,), "ssd")
    found = played({1: (first,), 10: (MORE, StopReplicas(0, (0, 1), "fewer"))})
    acts = {(act, replica): at_s for at_s, act, replica in told(found)}
    stopped = [replica for (act, replica) in acts if act == "released"]
    assert sorted(stopped) == [0, 1] and max(acts["released", one] for one in stopped) == acts["ready", 2]


def test_what_sends_is_lost_and_the_stage_comes_again_from_disk() -> None:
    found = played({1: (MORE,), 4: (MORE,)}, Fault(1300 * MS, "replica", 0))
    acts = [one[1:] for one in told(found)]
    assert ("lost", 0) in acts and acts[-1][0] == "ready"
    assert len(found.recorder.done) == 120


def test_a_provisioner_that_names_who_has_nothing_is_told_so() -> None:
    class Wrong:
        def provision(self, wanted: object) -> object:
            return None

    with pytest.raises(PolicyError, match="Wrong"):
        run(busy(), scaler=Scripted({1: (MORE,)}), period_ns=SECOND, provisioner=Wrong())  # type: ignore


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_drawn_worlds_with_peers(seed: int, losses: bool) -> None:
    world = drawn(seed, losses)
    for case in world.cases:
        case.elastic, case.layer_bytes = True, 30_000_000
    words = {"period_ns": 3 * MS, "provisioner": NetworkProvisioner()}
    plan = world.plan if losses else None
    found = run(*world.cases, faults=plan, scaler=AnythingGoes(seed), **words)  # type: ignore[arg-type]
    fresh = controller_of(*world.cases, scaler=AnythingGoes(seed), **words)  # type: ignore[arg-type]
    assert replay(found.journal(), fresh).first_difference is None
    for case in world.cases:
        check_order(case, found, losses)
    if not losses:
        assert len(found.recorder.done) == sum(len(case.arrivals_ns) for case in world.cases)
    assert len(replicas_of(*world.cases)) <= len(found.controller.engines)
