"""Figure 15 through the whole simulator: real policies, parameters and activations on the fabric."""

from typing import Any

import pytest

from experiments.blitzscale.one_pair import play
from hwmodels.loading.startup import load_start_up
from policies.live.zigzag_replay import best_effort, ilp_free
from serving.protocols.live import LiveView
from serving.vocabulary.actions import Action, AllocateGpus, Load, ReleaseGpus, Run
from serving.vocabulary.events import Event, Loaded, Opened, Ran
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.simulation import Simulation
from tests.worlds.drawn_elastic import SHAPE, topology
from tests.worlds.elastic_world import MS
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

# What activations cost, five times over, and what an estimated rate of loading is off.
NEAR = 0.02


def test_the_papers_example_in_a_whole_run_with_a_load_that_meets_no_layers_end() -> None:
    """A layer loads in 5.99 layer times; the old one is idle in the middle of batch 1's first layer."""
    played = play(7, 5.99, 7, "ilp_free")
    assert played.load == pytest.approx(5.99, abs=1e-4)
    assert played.finish == pytest.approx([7, 12, 17, 21, 24, 27, 29], abs=0.05)


@pytest.mark.parametrize(("load", "idle"), [(5.9, 0.1), (5.95, 0.95), (5.99, 1.05)])
def test_wherever_an_old_one_becomes_idle_it_waits_for_the_earliest_batch(load: float, idle: float) -> None:
    view = LiveView(7, round(load * 1000), (1000,) * 7)
    expected = [finish / 1000 for finish in ilp_free(view).finish_ns]
    played = play(7, load, 7, "ilp_free", idle)
    late = max(0.0, idle - 1)  # of batches 1 and 2; the third waits for a layer to end
    assert played.finish[0] - late == pytest.approx(expected[0], abs=NEAR)
    assert played.finish[1] - late == pytest.approx(expected[1], abs=NEAR)
    assert played.finish[2:] == pytest.approx(expected[2:], abs=NEAR)


def test_best_effort_in_a_whole_run_is_the_papers_until_everything_is_loaded() -> None:
    """Then quotas end, and the last batch is not kept waiting."""
    finish = play(7, 5.99, 7, "best_effort").finish
    assert best_effort(LiveView(7, 6, (1,) * 7)).finish_ns == (7, 13, 19, 25, 31, 37, 42)
    assert finish == pytest.approx([7, 13, 19, 25, 31, 37, 41], abs=0.1)


# ---- what ends at one instant


class Script:
    """Replica 0 leaves and comes back cold. With its first layer both run something of one length."""

    elastic = step_counts = None

    def __init__(self) -> None:
        self.told: list[tuple[int, Any]] = []

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        self.told.append((now_ns, event))
        if type(event) is Opened:
            place = AllocateGpus(0, "m", (0,), "prefill", False, "")
            load = Load(0, "m", (("replica", 1),), (("replica", 0),), (), True, False, "")
            return [ReleaseGpus(0, ""), place, load]
        if type(event) is Loaded and event.layers == 1:
            return [self.prompt(0, 0, (0, 1)), self.prompt(1, 1, None)]
        if type(event) is Ran and event.replica == 0:
            return [self.prompt(1, 0, (1, SHAPE.layers))]
        return []

    @staticmethod
    def prompt(replica: int, request: int, layers: tuple[int, int] | None) -> Run:
        return Run(replica, 0, ((request, 0, 8),), False, 1, True, "", True, layers)


def test_of_two_that_end_at_one_instant_the_one_that_loads_reports_last() -> None:
    """So that the other, whatever its number, is known to be idle before another layer begins."""
    rows = [
        ToyRows(MS * NS, 0, 0, mixed_intercept=count * MS * NS, per_token=0) for count in (SHAPE.layers, 1)
    ]
    data_plane = DataPlane(
        DataPlaneSetup(
            topology=topology(),
            shapes={"m": SHAPE},
            model_of=["m", "m"],
            gpus_of=[(0,), (1,)],
            loader="direct",
            start_up=load_start_up("none"),
        )
    )
    script = Script()
    driven: Any = script
    arrivals = [(Request(id, 0, 8, 1, "m"), 1) for id in range(2)]
    Simulation(
        driven, arrivals, rows, Collected(), journal=None, data_plane=data_plane, rows_of={"m": rows[0]}
    ).run()
    ran = [(now_ns, event.replica) for now_ns, event in script.told if type(event) is Ran]
    assert ran[0][0] == ran[1][0] and [replica for _, replica in ran] == [1, 0, 1]
