"""Loads and transfers in virtual time: closed forms, pipelines, chains, stops, and cold starts end to end."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.fabric.flow import KV, FlowSpec
from hwmodels.loading.startup import StartUp
from hwmodels.models.load_units import Unit, cut_into_chunks, layers_first, model_units
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.link import dram, gpu
from hwmodels.topology.topology import build
from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving.composition import compose
from serving.record import invariants
from serving.vocabulary.actions import Action, AllocateGpus, Load, ReleaseGpus, Send, StopLoad, StopSend
from serving.vocabulary.events import Event, Loaded, LoadStopped, Sent
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane
from simcore.simulation import Simulation
from tests.worlds.data_planes import GBPS, MODEL_BYTES, SHAPE, UNITS, load, plane, told, whole
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

LARGEST_CHUNK = max(unit.size_bytes for unit in UNITS if unit.layer is not None)


def test_from_host_memory_it_takes_bytes_over_the_pcie_rate() -> None:
    facts = told(plane(), (0, load(("host", 0), ("replica", 0))))
    assert facts == [(pytest.approx(MODEL_BYTES / (128 * GBPS), abs=1e-8), Loaded(0, 0, 32, True))]


def test_from_the_ssd_through_host_memory_the_slow_hop_and_one_chunk_of_the_other() -> None:
    facts = told(plane(), (0, load(("ssd", 0), ("replica", 0))))
    # The last chunk follows the one before it at once, so only its own copy comes on top.
    expected_s = MODEL_BYTES / (10 * GBPS) + LARGEST_CHUNK / (128 * GBPS)
    assert whole(facts)[0] == pytest.approx(expected_s, rel=1e-3)


def test_every_layer_is_told_in_order_when_asked_for() -> None:
    facts = told(plane(), (0, load(("host", 0), ("replica", 0), every_layer=True)))
    layers = [fact.layers for _, fact in facts if isinstance(fact, Loaded)]
    assert layers == [*range(1, 33), 32]
    assert [fact.fully_loaded for _, fact in facts if isinstance(fact, Loaded)] == [False] * 32 + [True]
    times = [at_s for at_s, _ in facts]
    assert times == sorted(times) and times[0] > 0


def test_ranks_load_side_by_side_and_a_layer_is_there_with_its_last_shard() -> None:
    data = plane("blitz_a", gpus_of=[(0, 1)])
    facts = told(data, (0, load(("host", 0), ("replica", 0), every_layer=True)))
    assert whole(facts)[0] == pytest.approx(MODEL_BYTES / 2 / (128 * GBPS), rel=1e-3)
    assert [fact.layers for _, fact in facts if isinstance(fact, Loaded)] == [*range(1, 33), 32]


def test_two_loads_over_one_link_share_it_and_a_third_elsewhere_does_not_care() -> None:
    alone_s = MODEL_BYTES / (100 * GBPS)
    both = [load(("replica", 0), ("replica", 2), id=0), load(("replica", 0), ("replica", 3), id=1)]
    facts = told(plane(), (0, both[0]), (0, both[1]), (0, load(("replica", 1), ("host", 0), id=2)))
    assert whole(facts, 0)[0] == whole(facts, 1)[0] == pytest.approx(2 * alone_s, rel=1e-3)
    assert whole(facts, 2)[0] == pytest.approx(MODEL_BYTES / (128 * GBPS), rel=1e-3)


def test_parameters_and_state_share_the_fabric() -> None:
    state = Send(5, "kv", (1,), 0, 2, round(100 * GBPS), "hand-off")
    alone = told(plane(), (0, state))
    assert alone == [(pytest.approx(1.0), Sent(5, state.size_bytes, ""))]
    beside = told(plane(), (0, load(("replica", 0), ("replica", 3))), (0, state))
    assert [at_s for at_s, fact in beside if isinstance(fact, Sent)] == [pytest.approx(2.0, rel=1e-6)]
    back = Send(6, "kv", (2,), 2, 0, round(100 * GBPS), "the other way")
    duplex = told(plane(), (0, state), (0, back))
    assert [at_s for at_s, _ in duplex] == [pytest.approx(1.0), pytest.approx(1.0)]


def test_kv_between_unequal_sizes_goes_by_heads_and_activations_in_parts() -> None:
    data = plane("blitz_a", gpus_of=[(0, 1), (8, 9, 10, 11)])
    kv = told(data, (0, Send(1, "kv", (3, 4), 0, 1, round(200 * GBPS), "")))
    assert [at_s for at_s, _ in kv] == [pytest.approx(1.0)]
    data = plane("blitz_a", gpus_of=[(0, 1), (8, 9, 10, 11)])
    parts = told(data, (0, Send(2, "activations", (), 0, 1, round(200 * GBPS), "")))
    assert [at_s for at_s, _ in parts] == [pytest.approx(1.0)]


def test_a_stopped_load_keeps_whole_layers_and_frees_the_links() -> None:
    second = load(("host", 0), ("replica", 0), id=1)
    first = load(("ssd", 0), ("replica", 0), every_layer=True)
    facts = told(plane(), (0, first), (5.0, StopLoad(0, "enough")), (5.0, second))
    stopped = [fact for _, fact in facts if isinstance(fact, LoadStopped)]
    layers = max(fact.layers for _, fact in facts if isinstance(fact, Loaded) and fact.load == 0)
    assert stopped == [LoadStopped(0, 0, layers, "enough")]
    assert 0 < layers < 32
    assert whole(facts, 1)[0] == pytest.approx(5.0 + MODEL_BYTES / (128 * GBPS), rel=1e-3)


def test_a_stopped_transfer_tells_how_much_had_moved() -> None:
    state = Send(5, "kv", (1,), 0, 2, round(100 * GBPS), "hand-off")
    facts = told(plane(), (0, state), (0.25, StopSend(5, "aborted")), (0.3, StopSend(5, "too late")))
    ((at_s, fact),) = facts
    assert at_s == 0.25 and isinstance(fact, Sent) and fact.cause == "aborted"
    assert fact.moved_bytes == pytest.approx(state.size_bytes / 4, abs=1)


@pytest.mark.parametrize("bundled", [True, False])
def test_state_of_equal_ranks_is_counted_whole_however_it_moves(bundled: bool) -> None:
    size_bytes = round(400 * GBPS)
    for after_s, moved_share in ((2.0, 1.0), (0.25, 0.25)):
        data = plane("blitz_a", [(0, 1, 2, 3), (8, 9, 10, 11)], bundled=bundled)
        facts = told(data, (0, Send(5, "kv", (1,), 0, 1, size_bytes, "")), (after_s, StopSend(5, "enough")))
        ((at_s, fact),) = facts
        assert at_s == pytest.approx(min(after_s, 1.0)) and isinstance(fact, Sent)
        assert fact.moved_bytes == pytest.approx(moved_share * size_bytes, abs=1)
        for nic in (0, 3, 11):
            start = data.topology.starts.nic_out if nic < 8 else data.topology.starts.nic_in
            carried = data.fabric.carried_bytes(start + nic, KV)
            assert carried == pytest.approx(moved_share * size_bytes / 4, abs=1)
        flows = data.fabric.start(FlowSpec((), 0), data.fabric.now_s)  # numbers count up from 0
        assert flows == (1 if bundled else 4)


def test_start_up_comes_before_the_bytes_and_engine_preparation_after_them() -> None:
    start_up = StartUp(process_s=2.0, cuda_context_s=0.5, connections_s=0.0, engine_init_s=3.0, source="test")
    alone_s = MODEL_BYTES / (128 * GBPS)
    cold = told(plane(start_up=start_up, contexts=0), (0, load(("host", 0), ("replica", 0), cold=True)))
    assert whole(cold)[0] == pytest.approx(2.5 + alone_s + 3.0)
    pooled = told(plane(start_up=start_up, contexts=1), (0, load(("host", 0), ("replica", 0), cold=True)))
    assert whole(pooled)[0] == pytest.approx(2.0 + alone_s + 3.0)
    warm = told(plane(start_up=start_up), (0, load(("host", 0), ("replica", 0))))
    assert whole(warm)[0] == pytest.approx(alone_s)


def test_a_gpu_loads_from_the_ssd_of_its_own_host_only() -> None:
    with pytest.raises(HardwareError, match=r"GPU 8 cannot load from the SSDs of host 0: .* it is in, 1"):
        told(plane(), (0, load(("ssd", 0), ("replica", 2))))


def test_a_stop_during_start_up_ends_it() -> None:
    data = plane(
        start_up=StartUp(
            process_s=2.0, cuda_context_s=0.0, connections_s=0.0, engine_init_s=0.0, source="test"
        )
    )
    cold = load(("host", 0), ("replica", 0), cold=True)
    assert told(data, (0, cold), (1.0, StopLoad(0, "no"))) == [(1.0, LoadStopped(0, 0, 0, "no"))]


REPLICAS = 2
LAYERS = (0, SHAPE.layers)
LOADS = tuple(
    replace(load(("ssd", 0), ("replica", n), id=n, cold=True), layers=LAYERS) for n in range(REPLICAS)
)


def simulated(starts: tuple[Load, ...]) -> Collected:
    """Two replicas, one request for each at time 0."""
    replicas = [
        Replica(
            id=n,
            model=SHAPE.name,
            layers=LayerRange(0, SHAPE.layers),
            gpus=(n,),
            kv_blocks=64,
            block_tokens=16,
        )
        for n in range(REPLICAS)
    ]
    controller = compose(
        replicas,
        LeastOutstanding(),
        lambda replica: ChunkedPrefill(8, 64),
        admission=AdmitAll(),
        starts=starts,
    )
    arrivals = [(Request(n, 0, 20, 8, SHAPE.name), 4) for n in range(REPLICAS)]
    seen = Collected()
    data = plane(gpus_of=[(n,) for n in range(REPLICAS)]) if starts else None
    rows = [ToyRows(10**9, 10**6, 10**4, 10**9, 10**7)] * REPLICAS
    Simulation(controller, arrivals, rows, seen, data_plane=data).run()
    invariants.check(controller)
    return seen


def test_requests_wait_exactly_for_the_load() -> None:
    warm, cold = simulated(()), simulated(LOADS)
    load_s = whole(told(plane(gpus_of=[(0,), (1,)]), *((0, one) for one in LOADS)), 0)[0]
    for request in range(REPLICAS):
        waited_ns = cold.done[request][2] - warm.done[request][2]
        assert waited_ns == round(load_s * 1e9)


def flows_started(data: DataPlane, *actions: tuple[float, Action]) -> int:
    """How many flows the fabric has had when all is over."""
    told(data, *actions)
    return data.fabric.start(FlowSpec((), 0.0), data.fabric.now_s)


def test_a_load_of_which_nobody_watches_the_layers_is_one_flow() -> None:
    quiet, watched = (load(("host", 0), ("replica", 0), every_layer=every) for every in (False, True))
    # One more each: the time before it begins.
    assert flows_started(plane(), (0, quiet)) == 2
    assert flows_started(plane(), (0, watched)) == 1 + len(cut_into_chunks(UNITS))
    slow = build(load_cluster("blitz_b"))  # with latencies
    for one in (quiet, watched):
        data = plane()
        data = DataPlane(replace(data._setup, topology=slow))
        facts = told(data, (0, one))
        path = slow.path(dram(0), gpu(0))
        rate = min(slow.links[link].rate_bytes_per_s for link in path)
        assert whole(facts)[0] == pytest.approx(slow.latency_s(path) + MODEL_BYTES / rate, abs=3e-9)


@pytest.mark.parametrize("joins_s", [0.0, 0.1, 0.7, 1.2])
def test_a_load_that_gets_a_follower_goes_on_chunk_by_chunk(joins_s: float) -> None:
    def chain(every_layer: bool) -> list[tuple[float, Event]]:
        first = load(("host", 0), ("replica", 0), id=0, every_layer=every_layer)
        then = load(("replica", 0), ("replica", 2), id=1)
        facts = told(plane(), (0, first), (joins_s, then))
        return [(at_s, fact) for at_s, fact in facts if isinstance(fact, Loaded) and fact.fully_loaded]

    quiet, watched = chain(False), chain(True)
    assert [fact for _, fact in quiet] == [fact for _, fact in watched] and len(quiet) == 2
    assert [at_s for at_s, _ in quiet] == pytest.approx([at_s for at_s, _ in watched], abs=2e-9)


@pytest.mark.parametrize("stops_s", [0.0, 0.05, 0.4, 0.9])
def test_a_stop_tells_the_layers_that_one_flow_has_brought(stops_s: float) -> None:
    found = []
    for every_layer in (False, True):
        data = plane()
        one = load(("host", 0), ("replica", 0), every_layer=every_layer)
        facts = told(data, (0, one), (stops_s, StopLoad(0, "enough")))
        stopped = [fact for _, fact in facts if isinstance(fact, LoadStopped)]
        found.append((stopped, [replace(record, seconds=0.0) for record in data.records]))
    assert found[0] == found[1]
    assert len(found[0][0]) == 1 and (found[0][0][0].layers > 0) == (stops_s > 0.1)


def order_of(units: Sequence[Unit]) -> list[str]:
    return [unit.name for unit in units]


@pytest.mark.parametrize("name", ["llama3_8b", "tiny_llama"])
def test_the_layers_may_come_first(name: str) -> None:
    units = model_units(load_llm(name))
    first = layers_first(units)
    layers = load_llm(name).layers
    assert order_of(first)[:layers] == [f"layer {layer}" for layer in range(layers)]
    assert order_of(first)[layers:] == [name for name in order_of(units) if not name.startswith("layer")]
    assert sorted(order_of(first)) == sorted(order_of(units))


def test_every_layer_comes_sooner_by_the_embedding_and_all_at_the_same_time() -> None:
    usual = load(("host", 0), ("replica", 0), every_layer=True)
    first = replace(usual, layers_first=True)
    (then, early) = (told(plane(), (0, one)) for one in (usual, first))
    assert [fact for _, fact in then] == [fact for _, fact in early]
    assert [fact.layers for _, fact in early if isinstance(fact, Loaded)] == [*range(1, 33), 32]
    embedding_s = UNITS[0].size_bytes / (128 * GBPS)
    for (then_s, fact), (early_s, _) in zip(then, early, strict=True):
        assert isinstance(fact, Loaded)
        assert then_s - early_s == pytest.approx(0 if fact.fully_loaded else embedding_s, abs=3e-9)


def test_both_orders_may_be_under_way_at_once() -> None:
    """Each load keeps its own, whichever came first."""
    usual = load(("host", 0), ("replica", 0), id=0, every_layer=True)
    first = replace(load(("host", 1), ("replica", 2), id=1, every_layer=True), layers_first=True)
    alone = [told(plane(), (0, one)) for one in (usual, first)]
    for together in (told(plane(), (0, usual), (0, first)), told(plane(), (0, first), (0, usual))):
        for number, own in enumerate(alone):
            assert [(at_s, f) for at_s, f in together if isinstance(f, Loaded) and f.load == number] == own


@pytest.mark.parametrize("joins_s", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("feeds_layers_first", [False, True])
@pytest.mark.parametrize("wants_layers_first", [False, True])
def test_a_source_under_way_passes_on_what_comes_next_in_the_order_of_its_target(
    feeds_layers_first: bool, wants_layers_first: bool, joins_s: float
) -> None:
    feeder = load(("host", 0), ("replica", 0), id=0, every_layer=True)
    then = load(("replica", 0), ("replica", 2), id=1, every_layer=True)
    feeder = replace(feeder, layers_first=feeds_layers_first)
    then = replace(then, layers_first=wants_layers_first)
    facts = told(plane(), (0, feeder), (joins_s, then))
    counts = {
        number: [(at_s, f.layers) for at_s, f in facts if isinstance(f, Loaded) and f.load == number]
        for number in (0, 1)
    }
    assert [layers for _, layers in counts[1]] == [*range(1, 33), 32]
    behind = [b - a for (a, _), (b, _) in zip(counts[0], counts[1], strict=True)]
    assert min(behind) >= 0, "nothing is passed on before it is there"
    ended_s, fed_s = counts[1][-1][0], counts[0][-1][0]
    if feeds_layers_first and not wants_layers_first:
        # The embedding comes last but for the head, and is awaited.
        head_s = UNITS[-1].size_bytes / (128 * GBPS)
        least_s = fed_s - head_s + MODEL_BYTES / (100 * GBPS)
        assert ended_s == pytest.approx(least_s, abs=1e-6)
    elif joins_s == 0.0:
        assert ended_s < fed_s + 0.5 * MODEL_BYTES / (100 * GBPS), "most of it went at the same time"


def test_the_layers_of_a_replica_that_was_placed_cold_are_counted() -> None:
    data = plane(gpus_of=[])
    data.carry_out(0, AllocateGpus(0, SHAPE.name, (0,), "both", False, "test"))
    assert data.layers_of(SHAPE.name) == 32 and data.layers_there(0) == 0
    one = replace(load(("host", 0), ("replica", 0), every_layer=True), layers_first=True)
    seen = []
    data.carry_out(0, one)
    while (due_ns := data.next_ns()) is not None and len(seen) < 5:
        for fact in data.collect(due_ns):
            assert isinstance(fact, Loaded) and fact.layers == data.layers_there(0)
            seen.append(fact)
    data.carry_out(due_ns or 0, StopLoad(0, "enough"))
    assert data.layers_there(0) == 5, "what is there stays"
    data.carry_out(due_ns or 0, replace(one, load=1))
    assert data.layers_there(0) == 5, "though it is sent once more"
    told(data)
    assert data.layers_there(0) == 32
    data.carry_out(10**12, ReleaseGpus(0, "test"))
    data.carry_out(10**12, AllocateGpus(0, SHAPE.name, (0,), "both", False, "test"))
    assert data.layers_there(0) == 0
