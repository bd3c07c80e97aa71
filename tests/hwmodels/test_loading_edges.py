"""Loads as edges: chains of them, shards that targets exchange, broadcasts, stops that spread, bundles."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.fabric.flow import PARAMETERS
from hwmodels.loading.loader import load_loader
from hwmodels.loading.startup import StartUp
from hwmodels.models.load_units import cut_into_chunks, model_units
from serving.vocabulary.actions import Action, Endpoint, Load, Shard, StopLoad
from serving.vocabulary.events import Event, Loaded, LoadStopped
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.data_plane.load_routes import load_route
from tests.worlds.data_planes import GBPS, NONE, ideal, load, told, whole

SHAPE = load_llm("llama3_8b")
UNITS = model_units(SHAPE)
CHUNKS = [chunk.size_bytes for chunk in cut_into_chunks(UNITS)]
MODEL_BYTES = SHAPE.weight_bytes
NIC, NVLINK, PCIE, PCIE_PEER = 100 * GBPS, 1600 * GBPS, 128 * GBPS, 256 * GBPS
FREE = 1e15  # bytes/s of a shard that nothing but its path limits
NS = 1.1e-9  # facts are told at the next whole nanosecond


def plane(
    cluster: str,
    gpus_of: Sequence[tuple[int, ...]],
    bundled: bool = True,
    start_up: StartUp = NONE,
    loader: str = "direct",
) -> DataPlane:
    setup = DataPlaneSetup(
        topology=ideal(cluster),
        shapes={SHAPE.name: SHAPE},
        model_of=[SHAPE.name] * len(gpus_of),
        gpus_of=gpus_of,
        loader=loader,
        start_up=start_up,
        bundled=bundled,
    )
    return DataPlane(setup)


def instances(host: int, count: int, ranks: int = 1) -> list[tuple[int, ...]]:
    """GPUs of instances side by side in a host of eight."""
    return [tuple(range(8 * host + ranks * one, 8 * host + ranks * (one + 1))) for one in range(count)]


def edge(
    gpus_of: Sequence[tuple[int, ...]],
    sources: Sequence[int],
    targets: Sequence[int],
    id: int = 0,
    rates: Sequence[float] = (),
) -> Load:
    """Every target gets an equal part of each rank; the sources take turns. rates: by target, as shares."""
    ranks = len(gpus_of[0])
    weights = rates or [1.0] * len(targets)
    shards = tuple(
        Shard(
            gpus_of[sources[n % len(sources)]][rank], gpus_of[target][rank], part / sum(weights) / ranks, FREE
        )
        for rank in range(ranks)
        for n, (target, part) in enumerate(zip(targets, weights))
    )
    return Load(
        id, SHAPE.name, replicas(sources), replicas(targets), shards, False, False, "an edge of the test"
    )


def replicas(numbers: Sequence[int]) -> tuple[Endpoint, ...]:
    return tuple(("replica", number) for number in numbers)


def ends(data: DataPlane, *actions: Load) -> dict[int, list[float]]:
    """Of each load, in s, when its targets have everything."""
    facts = told(data, *((0.0, action) for action in actions))
    data.fabric.check()
    return {action.load: list(whole(facts, action.load).values()) for action in actions}


# Chains


@pytest.mark.parametrize("targets", range(1, 7))
@pytest.mark.parametrize("cluster", ["blitz_a", "blitz_b"])
def test_a_chain_of_edges_takes_one_chunk_more_for_each_further_target(cluster: str, targets: int) -> None:
    """From host to host and back: every GPU has its own NIC, and both directions are used."""
    data = plane(cluster, [(8 * (number % 2) + number // 2,) for number in range(targets + 1)])
    edges = [load(("replica", one), ("replica", one + 1), id=one) for one in range(targets)]
    found = ends(data, *edges)
    for further in range(targets):
        expected_s = (MODEL_BYTES + further * max(CHUNKS)) / NIC
        assert found[further] == [pytest.approx(expected_s, abs=NS)]


def test_a_chain_may_begin_in_a_host_or_an_ssd() -> None:
    data = plane("blitz_b", [(0,), (8,), (1,)])
    chain = [load(("ssd", 0), ("replica", 0), id=0)]
    chain += [load(("replica", one), ("replica", one + 1), id=one + 1) for one in range(2)]
    found = ends(data, *chain)
    for further, rate in ((0, PCIE), (1, NIC), (2, NIC)):
        before_s = found[further - 1][0] if further else MODEL_BYTES / (10 * GBPS)
        assert found[further][0] - before_s == pytest.approx(CHUNKS[-1] / rate, abs=3 * NS)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0, 1.5])
def test_who_comes_late_gets_at_once_what_is_there(share: float) -> None:
    alone_s = MODEL_BYTES / NIC
    data = plane("blitz_b", [(0,), (8,), (1,)])
    first = load(("replica", 0), ("replica", 1), id=0)
    late = load(("replica", 1), ("replica", 2), id=1)
    begins_s = round(share * alone_s, 9)
    facts = told(data, (0.0, first), (begins_s, late))
    assert whole(facts, 0)[0] == pytest.approx(alone_s, abs=NS)
    # Behind by more than a chunk it never waits again.
    assert whole(facts, 1)[0] == pytest.approx(begins_s + alone_s, abs=2 * NS)


def test_a_target_of_two_sources_gets_a_chunk_when_both_have_it() -> None:
    """Replica 1 loads at half the rate of replica 3, which both feed replica 2 of two channels."""
    gpus_of = [(0,), (8,), (16,), (9,), (1,)]
    data = plane("blitz_a", gpus_of)
    slow = load(("replica", 0), ("replica", 1), id=0)
    rival = load(("replica", 0), ("replica", 3), id=1)
    both = edge(gpus_of, [1, 4], [2], id=2)
    halves = tuple(Shard(gpu, 16, 0.5, FREE) for gpu in (8, 1))
    found = ends(data, slow, rival, replace(both, shards=halves))
    slow_s = 2 * MODEL_BYTES / NIC
    assert found[0] == [pytest.approx(slow_s, abs=NS)]
    # Two channels into one NIC: as fast as one.
    assert found[2] == [pytest.approx(slow_s + CHUNKS[-1] / NIC, abs=3 * NS)]


# Shards


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("ranks", [1, 2])
def test_equal_parts_and_then_all_gather(count: int, ranks: int) -> None:
    gpus_of = instances(0, count, ranks) + instances(1, count, ranks)
    data = plane("blitz_a", gpus_of)
    found = ends(data, edge(gpus_of, range(count), range(count, 2 * count)))
    lane_s = MODEL_BYTES / ranks / count / NIC
    gather_s = CHUNKS[-1] / ranks * (count - 1) / count / NVLINK
    assert found[0] == [pytest.approx(lane_s + gather_s, abs=NS)] * count
    starts = data.topology.starts
    for gpu in (one for own in gpus_of[count:] for one in own):
        whole_bytes = MODEL_BYTES / ranks
        assert data.fabric.carried_bytes(starts.nic_in + gpu, PARAMETERS) == pytest.approx(
            whole_bytes / count
        )
        gathered = data.fabric.carried_bytes(starts.nvlink_in + gpu, PARAMETERS)
        assert gathered == pytest.approx(whole_bytes * (count - 1) / count)


def test_without_nvlink_the_gather_shares_the_gpus_own_ports() -> None:
    """A quarter comes in over RDMA, three quarters over PCIe: both cross the GPU's port, which is twice as
    fast as the NIC. So the gather of a chunk takes longer than its channels, and sets the pace."""
    gpus_of = instances(0, 4) + instances(1, 4)
    data = plane("blitz_b", gpus_of)
    found = ends(data, edge(gpus_of, range(4), range(4, 8)))
    assert min(found[0]) >= MODEL_BYTES / PCIE_PEER
    assert max(found[0]) < 1.05 * MODEL_BYTES / PCIE_PEER
    for gpu in range(8, 16):
        carried = data.fabric.carried_bytes(data.topology.starts.pcie_in + gpu, PARAMETERS)
        assert carried == pytest.approx(MODEL_BYTES if gpu < 12 else 0)


def test_a_chain_of_groups_forwards_what_is_gathered() -> None:
    gpus_of = [own for host in range(3) for own in instances(host, 4)]
    groups = [list(range(4 * host, 4 * host + 4)) for host in range(3)]
    data = plane("blitz_a", gpus_of)
    found = ends(data, edge(gpus_of, groups[0], groups[1], id=0), edge(gpus_of, groups[1], groups[2], id=1))
    largest_s = max(CHUNKS) / 4 / NIC + 3 / 4 * max(CHUNKS) / NVLINK
    gather_s = 3 / 4 * CHUNKS[-1] / NVLINK
    assert found[0] == [pytest.approx(MODEL_BYTES / 4 / NIC + gather_s, abs=NS)] * 4
    assert found[1] == [pytest.approx(MODEL_BYTES / 4 / NIC + largest_s + gather_s, rel=1e-3)] * 4


def test_unequal_parts_take_as_long_as_the_largest() -> None:
    gpus_of = instances(0, 2) + instances(1, 2)
    data = plane("blitz_a", gpus_of)
    found = ends(data, edge(gpus_of, [0, 1], [2, 3], rates=[3.0, 1.0]))
    # Into the second target goes what the first one has: three quarters.
    assert found[0][0] == pytest.approx(0.75 * MODEL_BYTES / NIC + 0.25 * CHUNKS[-1] / NVLINK, abs=NS)
    assert found[0][1] == pytest.approx(0.75 * MODEL_BYTES / NIC + 0.75 * CHUNKS[-1] / NVLINK, abs=NS)


def test_a_source_broadcasts_to_its_nvlink_domain() -> None:
    for ranks in (1, 2):
        gpus_of = instances(0, 4, ranks)
        data = plane("blitz_a", gpus_of)
        found = ends(data, edge(gpus_of, [0], [1, 2, 3]))
        assert found[0] == [pytest.approx(MODEL_BYTES / ranks / NVLINK, abs=NS)] * 3
        starts = data.topology.starts
        for gpu in range(4 * ranks):
            out, into = (
                data.fabric.carried_bytes(start + gpu, PARAMETERS)
                for start in (starts.nvlink_out, starts.nvlink_in)
            )
            assert out == pytest.approx(MODEL_BYTES / ranks if gpu < ranks else 0)
            assert into == pytest.approx(MODEL_BYTES / ranks if gpu >= ranks else 0)


def test_without_nvlink_nothing_copies_so_the_parts_are_gathered() -> None:
    gpus_of = instances(0, 4)
    data = plane("blitz_b", gpus_of)
    found = ends(data, edge(gpus_of, [0], [1, 2, 3]))
    out = data.fabric.carried_bytes(data.topology.starts.pcie_out, PARAMETERS)
    assert out == pytest.approx(MODEL_BYTES)
    # Two thirds of a chunk go round while a third of the next comes in; a smaller one before waits for it.
    least_s = MODEL_BYTES / PCIE_PEER + 2 / 3 * CHUNKS[-1] / PCIE_PEER
    most_s = least_s + (max(CHUNKS) - min(CHUNKS)) / PCIE_PEER
    assert len(found[0]) == 3 and least_s - NS <= min(found[0]) <= max(found[0]) <= most_s


def test_shards_of_hosts_go_to_the_hosts_in_order() -> None:
    data = plane("blitz_a", [(8,), (9,)])
    shards = tuple(Shard(-1, target, 0.25, FREE) for target in (8, 8, 9, 9))
    hosts: tuple[Endpoint, ...] = (("host", 0), ("host", 1))
    (action,) = [Load(0, SHAPE.name, hosts, replicas([0, 1]), shards, False, False, "from memory")]
    ends(data, action)
    starts = data.topology.starts
    assert data.fabric.carried_bytes(starts.nic_in + 8, PARAMETERS) == pytest.approx(MODEL_BYTES / 2)
    assert data.fabric.carried_bytes(starts.nic_in + 9, PARAMETERS) == 0
    assert data.fabric.carried_bytes(starts.pcie_in + 9, PARAMETERS) == pytest.approx(MODEL_BYTES / 2)


def test_the_loader_caps_what_leaves_a_hosts_memory() -> None:
    data = plane("blitz_a", [(0,), (1,)], loader="safetensors")
    shards = tuple(Shard(-1, target, 0.5, FREE) for target in (0, 1))
    action = Load(0, SHAPE.name, (("host", 0),), replicas([0, 1]), shards, False, False, "from memory")
    loader = load_loader("safetensors", "dram")
    assert loader.rate_bytes_per_s < PCIE
    expected_s = loader.constant_s + MODEL_BYTES / 2 / loader.rate_bytes_per_s + CHUNKS[-1] / 2 / NVLINK
    assert ends(data, action)[0] == [pytest.approx(expected_s, abs=NS)] * 2


def test_the_rate_of_a_shard_caps_its_lane() -> None:
    gpus_of = instances(0, 1) + instances(1, 1)
    capped = replace(edge(gpus_of, [0], [1]), shards=(Shard(0, 8, 1.0, NIC / 4),))
    assert ends(plane("blitz_a", gpus_of), capped)[0] == [pytest.approx(4 * MODEL_BYTES / NIC, abs=NS)]


# Stops


def stops(facts: Sequence[tuple[float, Event]]) -> list[LoadStopped]:
    return [fact for _, fact in facts if isinstance(fact, LoadStopped)]


def test_a_stop_spreads_to_those_who_wait_for_it_and_to_nobody_else() -> None:
    data = plane("blitz_a", [(0,), (8,), (1,), (9,), (16,)])
    first, second, third = (load(("replica", one), ("replica", one + 1), id=one) for one in range(3))
    beside = load(("replica", 0), ("replica", 4), id=3)
    facts = told(data, (0.0, first), (0.0, second), (0.0, third), (0.0, beside), (0.5, StopLoad(0, "enough")))
    one = "load 0 to its source stopped: enough"
    assert [(fact.load, fact.cause) for fact in stops(facts)] == [
        (0, "enough"),
        (1, one),
        (2, f"load 1 to its source stopped: {one}"),
    ]
    layers = [fact.layers for fact in stops(facts)]
    assert layers == sorted(layers, reverse=True) and 0 < layers[0] < 32
    assert list(whole(facts, 3)) == [0]
    assert [record.fully_loaded for record in data.records] == [False, False, False, True]
    for record, there in zip(data.records, layers):
        held = sum(unit.size_bytes for unit in UNITS[: there + 1])
        assert held <= record.size_bytes < held + UNITS[1].size_bytes


def test_one_who_joins_two_branches_stops_once() -> None:
    gpus_of = [(0,), (8,), (9,), (16,)]
    data = plane("blitz_a", gpus_of)
    branches = [load(("replica", 0), ("replica", one), id=one) for one in (1, 2)]
    from_first = load(("replica", 1), ("host", 1), id=3)
    both = replace(
        edge(gpus_of, [1, 2], [3], id=4), shards=tuple(Shard(gpu, 16, 0.5, FREE) for gpu in (8, 9))
    )
    actions = [(0.0, action) for action in (*branches, from_first, both)]
    facts = told(data, *actions, (0.5, StopLoad(1, "enough")))
    assert [fact.load for fact in stops(facts)] == [1, 3, 4]
    assert list(whole(facts, 2)) == [0]


def test_who_got_its_source_whole_does_not_stop_with_it() -> None:
    """But one whose source was still preparing its engine does: that source does not come up."""
    late, alone_s = 0.5, MODEL_BYTES / NIC
    for engine_s, spreads in ((0.0, False), (3.0, True)):
        data = plane(
            "blitz_a",
            [(0,), (8,), (16,)],
            start_up=StartUp(
                process_s=0.0, cuda_context_s=0.0, connections_s=0.0, engine_init_s=engine_s, source="test"
            ),
        )
        first = load(("replica", 0), ("replica", 1), id=0, cold=True)
        second = load(("replica", 1), ("replica", 2), id=1)
        facts = told(data, (0.0, first), (late, second), (alone_s + 0.1, StopLoad(0, "late")))
        assert [fact.load for fact in stops(facts)] == ([0, 1] if spreads else [])
        expected = [] if spreads else [pytest.approx(alone_s + late, abs=2 * NS)]
        assert list(whole(facts, 1).values()) == expected


def test_of_two_targets_the_one_that_is_whole_keeps_those_it_feeds() -> None:
    gpus_of = instances(0, 2) + instances(1, 2) + instances(2, 2)
    data = plane("blitz_a", gpus_of)
    uneven = edge(gpus_of, [0, 1], [2, 3], rates=[3.0, 1.0])
    fed = [load(("replica", 2 + one), ("replica", 4 + one), id=1 + one) for one in range(2)]
    between_s = 0.75 * MODEL_BYTES / NIC + 0.5 * CHUNKS[-1] / NVLINK  # target 0 is whole, target 1 is not
    facts = told(data, *((0.0, action) for action in (uneven, *fed)), (between_s, StopLoad(0, "enough")))
    assert [(fact.load, fact.target) for fact in stops(facts)] == [(0, 1), (2, 0)]
    assert list(whole(facts, 0)) == [0] and list(whole(facts, 1)) == [0]


def test_a_source_must_exist_and_have_parameters() -> None:
    data = plane("blitz_b", [(0,), (8,)])
    with pytest.raises(AssertionError, match="load 0 names replica 7, which is not placed: place it first"):
        data.carry_out(0, load(("replica", 7), ("replica", 0)))
    data.carry_out(0, load(("replica", 0), ("replica", 1)))
    with pytest.raises(AssertionError, match=r"load 1 is to \('replica', 1\), where load 0 is under way"):
        data.carry_out(0, load(("replica", 0), ("replica", 1), id=1))
    data.carry_out(1000, StopLoad(0, "enough"))
    with pytest.raises(AssertionError, match="replica 1 as a source, which has no parameters"):
        data.carry_out(2000, load(("replica", 1), ("host", 1), id=2))
    data.carry_out(2000, load(("replica", 0), ("replica", 1), id=3))
    data.carry_out(2000, load(("replica", 1), ("host", 1), id=4))


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ((Shard(0, 8, 0.5, FREE),), "shards of rank 0 are 0.5 of all parameters, not 1.0"),
        ((Shard(0, 3, 1.0, FREE),), "GPU 3 belongs to none of its targets"),
        ((Shard(2, 8, 1.0, FREE),), "GPU 2 cannot send to GPU 8"),
        ((Shard(-1, 8, 1.0, FREE),), "shards from a host's memory and no such source"),
        ((Shard(0, 8, 0.5, FREE), Shard(0, 16, 0.5, FREE)), "not in one scale-up domain"),
        ((), "1 sources and 2 targets without shards"),
    ],
)
def test_shards_that_do_not_fit_are_refused(shards: tuple[Shard, ...], words: str) -> None:
    data = plane("blitz_a", [(0,), (8,), (16,)])
    with pytest.raises(AssertionError, match=words):
        data.carry_out(0, replace(edge([(0,), (8,), (16,)], [0], [1, 2]), shards=shards))


def test_replicas_of_different_sizes_share_no_load() -> None:
    data = plane("blitz_a", [(0, 1), (8,)])
    with pytest.raises(AssertionError, match="replicas of different sizes cannot share a load"):
        data.carry_out(0, load(("replica", 0), ("replica", 1)))


# Bundles


def hops_of(cluster: str, action: Load, gpus_of: Sequence[tuple[int, ...]], bundled: bool = True) -> int:
    return len(load_route(ideal(cluster), action, dict(enumerate(gpus_of)), None, bundled).hops)


def test_lanes_that_share_nothing_are_one_flow_and_others_are_not() -> None:
    gpus_of = instances(0, 4, 2) + instances(1, 4, 2)
    action = edge(gpus_of, range(4), range(4, 8))
    assert (hops_of("blitz_a", action, gpus_of), hops_of("blitz_a", action, gpus_of, False)) == (2, 16)
    # One source: its NICs carry four channels each, which stay apart; the gathers share nothing.
    from_one = edge(gpus_of, [0], range(4, 8))
    assert hops_of("blitz_a", from_one, gpus_of) == 8 + 1
    straight = load(("host", 0), ("replica", 0))
    assert hops_of("blitz_a", straight, gpus_of) == 1
    assert hops_of("blitz_a_shared_pcie", straight, gpus_of) == 2, "two GPUs on one switch"


def test_lanes_of_other_rates_or_parts_are_flows_of_their_own() -> None:
    gpus_of = instances(0, 2) + instances(1, 2)
    uneven = edge(gpus_of, [0, 1], [2, 3], rates=[3.0, 1.0])
    assert hops_of("blitz_a", uneven, gpus_of) == 4
    even = edge(gpus_of, [0, 1], [2, 3])
    capped = (even.shards[0], replace(even.shards[1], rate_bytes_per_s=1e9))
    assert hops_of("blitz_a", replace(even, shards=capped), gpus_of) == 2 + 1


@settings(max_examples=30)
@given(
    cluster=st.sampled_from(["blitz_a", "blitz_b", "blitz_a_shared_pcie"]),
    ranks=st.sampled_from([1, 2, 4]),
    one_source=st.booleans(),
    begins=st.lists(st.integers(0, 8), min_size=1, max_size=2),
    stop=st.none() | st.integers(1, 20),
)
def test_bundles_change_nothing_where_lanes_are_alike(
    cluster: str, ranks: int, one_source: bool, begins: list[int], stop: int | None
) -> None:
    """A group of host 0 to one of host 1, then inside it to its neighbours' host: times and bytes by link."""
    count = 4 // ranks
    gpus_of = [own for host in range(2) for own in instances(host, 2 * count, ranks)]
    first = edge(gpus_of, [0] if one_source else range(count), range(2 * count, 3 * count), id=0)
    back = edge(gpus_of, range(2 * count, 3 * count), range(count, 2 * count), id=1)
    actions: list[tuple[float, Action]] = [
        (at / 10, action) for at, action in zip(sorted(begins), (first, back))
    ]
    if stop is not None:
        actions.append((actions[-1][0] + stop / 20, StopLoad(0, "enough")))
    runs = [plane(cluster, gpus_of, bundled) for bundled in (True, False)]
    facts = [told(data, *actions) for data in runs]
    assert [fact for _, fact in facts[0]] == [fact for _, fact in facts[1]]
    assert [at_s for at_s, _ in facts[0]] == pytest.approx([at_s for at_s, _ in facts[1]], abs=2 * NS)
    for link in range(len(runs[0].topology.links)):
        carried = [data.fabric.carried_bytes(link, PARAMETERS) for data in runs]
        assert carried[0] == pytest.approx(carried[1], abs=100)


@settings(max_examples=30)
@given(
    ranks=st.sampled_from([1, 2]),
    weights=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    sources=st.integers(1, 3),
    cluster=st.sampled_from(["blitz_a", "blitz_b"]),
)
def test_every_gpu_gets_its_rank_once_whatever_the_parts(
    ranks: int, weights: list[int], sources: int, cluster: str
) -> None:
    gpus_of = instances(0, sources, ranks) + instances(1, len(weights), ranks)
    data = plane(cluster, gpus_of)
    targets = range(sources, sources + len(weights))
    facts = told(data, (0.0, edge(gpus_of, range(sources), targets, rates=[float(one) for one in weights])))
    assert {fact.target for _, fact in facts if isinstance(fact, Loaded)} == set(range(len(weights)))
    starts = data.topology.starts
    into = [starts.pcie_in] if cluster == "blitz_b" else [starts.nic_in, starts.nvlink_in]
    for gpu in (one for target in targets for one in gpus_of[target]):
        carried = sum(data.fabric.carried_bytes(start + gpu, PARAMETERS) for start in into)
        assert carried == pytest.approx(MODEL_BYTES / ranks, abs=1)
    out = sum(data.fabric.carried_bytes(starts.nic_out + gpu, PARAMETERS) for gpu in range(8))
    assert out == pytest.approx(MODEL_BYTES, abs=1)
