"""Relays of loads: one flow instead of one for each chunk, and nothing else may tell."""

from dataclasses import replace

import pytest

from hwmodels.fabric.flow import PARAMETERS, FlowSpec
from hwmodels.models.load_units import cut_into_chunks
from hwmodels.topology.link import dram, gpu
from serving.vocabulary.actions import Load, Send, StopLoad
from serving.vocabulary.events import LoadStopped, Sent
from simcore.data_plane.data_plane import DataPlane
from tests.worlds.data_planes import GBPS, MODEL_BYTES, UNITS, load, plane, told, whole
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.relay_play import play, script

NS = 1
CHUNKS = [chunk.size_bytes for chunk in cut_into_chunks(UNITS)]
SSD, PCIE = 10 * GBPS, 128 * GBPS


def flows_of(data: DataPlane) -> int:
    """How many it has started; numbers count up from 0."""
    return data.fabric.start(FlowSpec((), 0), data.fabric.now_s)


def watched(data: DataPlane) -> DataPlane:
    """Without relays: somebody looks at every link."""
    for link in range(len(data.topology.links)):
        data.fabric.watch(link)
    return data


def test_a_load_from_the_ssd_is_two_flows_and_ends_when_its_last_chunk_has_passed() -> None:
    data = plane("blitz_a", gpus_of=[(0,)])
    facts = told(data, (0, load(("ssd", 0), ("replica", 0))))
    assert whole(facts)[0] == pytest.approx(MODEL_BYTES / SSD + CHUNKS[-1] / PCIE, abs=2e-9)
    assert flows_of(data) == 1 + 2, "the start-up, the SSD, the last chunk"
    (into,) = data.topology.path(dram(0), gpu(0))
    assert data.fabric.carried_bytes(into, PARAMETERS) == MODEL_BYTES
    assert data.fabric.peak_share(into) == 1.0
    apart = watched(plane("blitz_a", gpus_of=[(0,)]))
    assert told(apart, (0, load(("ssd", 0), ("replica", 0)))) == facts
    assert flows_of(apart) == 1 + 2 * len(CHUNKS)


def test_each_layer_is_reported_as_before() -> None:
    facts = told(plane("blitz_a", gpus_of=[(0,)]), (0, load(("ssd", 0), ("replica", 0), every_layer=True)))
    assert len(facts) == 33


@pytest.mark.parametrize("shared", [False, True])
def test_a_transfer_over_the_second_hop_meets_chunks(shared: bool) -> None:
    """While chunk 3 passes, KV comes over the PCIe switch of the two GPUs, or over that of two others."""
    third_s = sum(CHUNKS[:4]) / SSD + CHUNKS[3] / (256 * GBPS) / 2
    other = 1 if shared else 3
    actions = [
        (0, load(("ssd", 0), ("replica", 0))),
        (third_s, Send(1, "kv", (1,), 2, 1, 10**8, "comes")),
    ]
    gpus_of = [(0,), (other,), (8,)]
    runs = [plane("blitz_a_shared_pcie", gpus_of), watched(plane("blitz_a_shared_pcie", gpus_of))]
    facts = [told(data, *actions) for data in runs]
    assert facts[0] == facts[1]
    sent_s = next(at_s for at_s, fact in facts[0] if isinstance(fact, Sent))
    assert sent_s - third_s == pytest.approx(10**8 / (100 * GBPS), rel=1e-6), "its NIC limits it"
    assert (flows_of(runs[0]) > len(CHUNKS)) == shared


def test_a_slower_second_hop_has_a_flow_for_each_chunk() -> None:
    data = plane("blitz_a", gpus_of=[(0,)])
    for link in data.topology.path(dram(0), gpu(0)):
        data.fabric.set_capacity(link, SSD / 2, 0.0)
    told(data, (0, load(("ssd", 0), ("replica", 0))))
    assert flows_of(data) > len(CHUNKS)


def test_what_is_asked_on_the_way_is_what_has_passed() -> None:
    data = plane("blitz_a", gpus_of=[(0,)])
    data.carry_out(0, load(("ssd", 0), ("replica", 0)))
    while data.fabric.now_s < 2.0 and (due_ns := data.next_ns()) is not None and due_ns <= 2 * 10**9:
        data.collect(due_ns)
    data.fabric.advance(2.0)
    moved = 2.0 * SSD
    here = [size for number, size in enumerate(CHUNKS) if sum(CHUNKS[: number + 1]) <= moved]
    late_s = 2.0 - sum(here) / SSD
    passed = sum(here[:-1]) + min(here[-1], late_s * PCIE)
    (into,) = data.topology.path(dram(0), gpu(0))
    assert data.fabric.carried_bytes(into, PARAMETERS) == pytest.approx(passed, abs=1.0)
    (out,) = data.topology.path(data.topology.ssd_of(0), dram(0))
    assert data.fabric.carried_bytes(out, PARAMETERS) == pytest.approx(moved, abs=1.0)


def test_a_stop_counts_the_layers_that_have_passed() -> None:
    """Embedding: three chunks; then layers."""
    for layers in (0, 5, 31):
        at_s = sum(CHUNKS[: 3 + layers]) / SSD + CHUNKS[5] / PCIE + 1e-6 * bool(layers)
        facts = told(
            plane("blitz_a", gpus_of=[(0,)]),
            (0, load(("ssd", 0), ("replica", 0))),
            (at_s, StopLoad(0, "enough")),
        )
        assert [fact for _, fact in facts] == [LoadStopped(0, 0, layers, "enough")]


def test_who_forwards_what_comes_gets_it_chunk_by_chunk() -> None:
    first = load(("ssd", 0), ("replica", 0))
    onward: Load = replace(load(("replica", 0), ("replica", 2), id=1))
    gpus_of = [(0,), (1,), (8,)]
    for at_s in (0, 3.0):
        facts = told(plane("blitz_a", gpus_of), (0, first), (at_s, onward))
        assert whole(facts, 1)[0] - whole(facts, 0)[0] == pytest.approx(CHUNKS[-1] / (100 * GBPS), rel=0.01)


@on_drawn_seeds(range(40))
def test_drawn_loads_end_as_they_do_chunk_by_chunk(seed: int) -> None:
    drawn = script(seed)
    found, apart = (play(drawn, relays) for relays in (True, False))
    facts, others = ([sorted(one.facts, key=lambda fact: (repr(fact[1]), fact[0]))] for one in (found, apart))
    assert [fact for _, fact in facts[0]] == [fact for _, fact in others[0]]
    for (at_ns, _), (other_ns, _) in zip(facts[0], others[0], strict=True):
        assert abs(at_ns - other_ns) <= NS
    assert found.carried_bytes == pytest.approx(apart.carried_bytes, abs=0.01)
    assert [one[:2] for one in found.records] == [one[:2] for one in apart.records]


def test_the_drawn_loads_have_relays() -> None:
    seeds = range(40)
    flows = [sum(play(script(seed), relays).flows for seed in seeds) for relays in (True, False)]
    assert flows[0] < 0.97 * flows[1]
