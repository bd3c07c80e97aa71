"""Replicas that come and go on the data plane: contexts, records, and when each layer was there."""

import math
from dataclasses import replace

import pytest

from hwmodels.loading.startup import StartUp
from servetwin.results.data_plane_summary import data_plane_summary
from serving.vocabulary.actions import Action, AllocateGpus, Load, ReleaseGpus, Send, StopLoad
from serving.vocabulary.events import Loaded, Sent
from simcore.data_plane.data_plane import DataPlane
from tests.worlds.data_planes import GBPS, MODEL_BYTES, SHAPE, UNITS, load, plane, told, whole

PCIE_S = MODEL_BYTES / (128 * GBPS)
START = StartUp(process_s=1.0, cuda_context_s=0.5, connections_s=0.0, engine_init_s=0.0, source="test")


def place(replica: int, *gpus: int, warm: bool = False) -> AllocateGpus:
    return AllocateGpus(replica, SHAPE.name, gpus, "both", warm, "test")


def cold(replica: int, id: int) -> Load:
    return load(("host", 0), ("replica", replica), id=id, cold=True)


def test_a_replica_that_is_placed_later_loads_sends_and_comes_back() -> None:
    data = plane(gpus_of=[(0,)])
    kv = Send(0, "kv", (3,), 7, 0, round(PCIE_S * 128 * GBPS), "hand-off")
    facts = told(data, (0.0, place(7, 1)), (0.0, load(("host", 0), ("replica", 7))), (5.0, kv))
    assert whole(facts) == {0: pytest.approx(PCIE_S, abs=1e-8)}
    assert facts[-1][1] == Sent(0, kv.size_bytes, "") and facts[-1][0] == pytest.approx(5 + PCIE_S / 2)
    data.carry_out(10**10, ReleaseGpus(7, "idle"))
    with pytest.raises(AssertionError, match="replica 7, which is not placed"):
        data.carry_out(10**10, load(("host", 0), ("replica", 7), id=1))
    with pytest.raises(
        AssertionError, match=r"was on GPUs \(1,\) and is placed on \(2,\): give it another number"
    ):
        data.carry_out(10**10, place(7, 2))
    data.carry_out(10**10, place(7, 1, warm=True))
    data.carry_out(10**10, load(("replica", 7), ("replica", 0), id=1))
    assert data.collect(2 * 10**10) == [Loaded(1, 0, 32, True)]


def test_a_replica_that_was_placed_cold_has_nothing_to_send() -> None:
    data = plane(gpus_of=[(0,)])
    data.carry_out(0, place(7, 1))
    with pytest.raises(AssertionError, match="replica 7 as a source, which has no parameters: load it first"):
        data.carry_out(0, load(("replica", 7), ("replica", 0)))


def test_a_load_is_of_the_model_of_its_replicas() -> None:
    data = plane(gpus_of=[(0,)])
    with pytest.raises(AssertionError, match="load 0 is of opt_13b, and replica 0 of llama3_8b"):
        data.carry_out(0, replace(load(("host", 0), ("replica", 0)), model="opt_13b"))


def test_contexts_go_back_to_the_pool_and_are_taken_again() -> None:
    """Two contexts for four GPUs: the second replica has to make its own, the third takes the first's."""
    data = plane(gpus_of=[], start_up=START, contexts=2)
    begins = [place(0, 0, 1), place(1, 2, 3)]
    for action in begins:
        data.carry_out(0, action)
    half_s = PCIE_S / 2
    facts = told(data, *((0.0, cold(number, number)) for number in (0, 1)))
    assert whole(facts, 0)[0] == pytest.approx(1.0 + half_s, rel=1e-3)
    assert whole(facts, 1)[0] == pytest.approx(1.5 + half_s, rel=1e-3)
    assert data.placement._contexts.ready == 0
    data.carry_out(10**10, ReleaseGpus(0, "idle"))
    assert data.placement._contexts.ready == 2
    data.carry_out(10**10, ReleaseGpus(1, "idle"))
    assert data.placement._contexts.ready == 2, "the pool is full, so these are destroyed"
    data.carry_out(10**10, place(0, 0, 1, warm=True))
    assert data.placement._contexts.ready == 0
    data.carry_out(10**10, place(1, 2, 3))
    facts = told(data, (10.0, cold(1, 2)))
    assert whole(facts, 2)[0] == pytest.approx(11.5 + half_s, rel=1e-3)


def busy_plane() -> DataPlane:
    data = plane(gpus_of=[(0,), (1,), (8,)])
    data.carry_out(0, load(("replica", 0), ("replica", 2), id=5))
    return data


@pytest.mark.parametrize("replica", [0, 2])
def test_gpus_are_not_reclaimed_under_a_load(replica: int) -> None:
    data = busy_plane()
    with pytest.raises(AssertionError, match=f"replica {replica} is reclaimed while load 5 needs it"):
        data.carry_out(10, ReleaseGpus(replica, "idle"))
    data.carry_out(10, StopLoad(5, "enough"))
    data.carry_out(10, ReleaseGpus(replica, "idle"))
    with pytest.raises(AssertionError, match="was never placed"):
        data.carry_out(10, ReleaseGpus(replica, "idle"))


def test_when_each_layer_was_there_is_known_once_all_are() -> None:
    data = plane()
    begins_s = 0.25
    action = load(("host", 0), ("replica", 1), every_layer=True)
    facts = told(data, (begins_s, action))
    before, expected = 0, []
    for unit in UNITS:
        before += unit.size_bytes
        if unit.layer is not None:
            expected.append(math.ceil((begins_s + before / (128 * GBPS)) * 1e9 - 1e-3))
    ready_ns = data.layer_ready_ns(1)
    assert ready_ns == pytest.approx(expected, abs=1) and len(ready_ns) == 32
    told_ns = [
        round(at_s * 1e9) for at_s, fact in facts if isinstance(fact, Loaded) and not fact.fully_loaded
    ]
    assert list(ready_ns) == told_ns
    data.carry_out(2 * 10**9, ReleaseGpus(1, "idle"))
    assert data.layer_ready_ns(1) == ready_ns
    data.carry_out(2 * 10**9, place(1, 1))
    with pytest.raises(KeyError):
        data.layer_ready_ns(1)


def test_a_replica_that_is_placed_again_has_no_layers_of_its_last_load() -> None:
    data = plane(gpus_of=[(0,)])
    told(data, (0.0, place(7, 1)), (0.0, load(("host", 0), ("replica", 7))))
    assert data.layers_there(7) == SHAPE.layers
    data.carry_out(10**10, ReleaseGpus(7, "idle"))
    data.carry_out(10**10, place(7, 1))
    assert data.layers_there(7) == 0


def test_who_loads_without_every_layer_has_no_times_of_layers() -> None:
    data = plane()
    told(data, (0.0, load(("host", 0), ("replica", 1))))
    with pytest.raises(KeyError):
        data.layer_ready_ns(1)


def test_records_say_what_came_from_where() -> None:
    data = plane(gpus_of=[(0,), (8,), (1,)])
    actions: list[tuple[float, Action]] = [
        (0.0, load(("host", 1), ("replica", 1), id=0)),
        (0.0, load(("replica", 1), ("replica", 0), id=1)),
        (3.0, load(("ssd", 0), ("replica", 2), id=2)),
        (3.0 + 0.5 * MODEL_BYTES / (10 * GBPS), StopLoad(2, "enough")),
    ]
    told(data, *actions)
    kinds = [(record.load, record.target, record.source, record.fully_loaded) for record in data.records]
    assert kinds == [
        (0, ("replica", 1), "host", True),
        (1, ("replica", 0), "replica", True),
        (2, ("replica", 2), "ssd", False),
    ]
    assert {record.part.model for record in data.records} == {SHAPE.name}
    span_s = 10.0
    found = data_plane_summary(data, span_s)
    nic = found["network"]["nic"]
    could_bytes = 100 * GBPS * span_s * nic["links"]
    assert (
        nic["mean_share"] == pytest.approx(sum(nic["bytes"].values()) / could_bytes) and nic["mean_share"] > 0
    )
    busiest = max(
        sum(data.fabric.carried_bytes(number, kind) for kind in nic["bytes"])
        for number, link in enumerate(data.topology.links)
        if link.kind == "nic"
    )
    assert pytest.approx(busiest / (100 * GBPS * span_s)) == nic["max_share"] > nic["mean_share"]
    summary = found["loads"]
    half = summary["bytes_by_tier"].pop("ssd")
    assert summary["bytes_by_tier"] == {"gpu": MODEL_BYTES, "host": MODEL_BYTES, "remote": 0}
    assert half == pytest.approx(MODEL_BYTES / 2, abs=2 * UNITS[1].size_bytes)
    assert (summary["count"], summary["stopped"]) == (2, 1)
