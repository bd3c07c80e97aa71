"""What the data plane promises, end to end: cluster file, paths, fabric and plans together."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.data_plane import load, plane, sharded_load, slowdown_in_batches
from experiments.blitzscale.fig08 import SHARES
from experiments.blitzscale.fig21 import EFFICIENCIES, SET_UPS, load_times
from experiments.blitzscale.load_plans import (
    FIG_21_BYTES,
    GB,
    exact,
    fabric_of,
    four_nics,
    hop,
    play,
    slowdown,
    two_nics,
    units_of,
)
from hwmodels.catalogue import load_llm
from hwmodels.fabric.flow import KV, PARAMETERS
from hwmodels.loading.chain import Chain
from hwmodels.loading.group_chain import Group, group_chain
from hwmodels.loading.plan import Hop
from hwmodels.loading.ranks import Ranks
from hwmodels.models.load_units import Unit, cut_into_chunks, model_units, shard
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.link import dram, gpu, gpu_ssd
from hwmodels.topology.topology import Topology, build
from serving.vocabulary.actions import Action, Send, StopLoad, StopSend
from serving.vocabulary.events import Loaded, Sent
from tests.worlds.data_planes import told, whole
from tests.worlds.load_play import broadcast

GBPS = 1e9 / 8
UNITS = model_units(load_llm("llama3_8b"))
MODEL_BYTES = sum(unit.size_bytes for unit in UNITS)
NS = 1.1e-9  # facts are told at the next whole nanosecond
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "CLUSTERS.md"


def alone_s(topology: Topology, plan: Chain | Ranks) -> float:
    """Seconds until everything is everywhere."""
    (placement,) = play(topology, [plan])
    return max(placement.values())


# Figure 21 of BlitzScale

FIG_21 = {
    ("four NICs", "shipped"): 1.12, ("four NICs", "0.77"): 1.25, ("four NICs", "1.0"): 0.96,
    ("two NICs", "shipped"): 2.23, ("two NICs", "0.77"): 2.49, ("two NICs", "1.0"): 1.92,
    ("AllCache", "shipped"): 2.0, ("AllCache", "0.77"): 1.95, ("AllCache", "1.0"): 1.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():  # type: ignore[no-untyped-def]
    return {(row.set_up, row.efficiency): row for row in load_times()}


def test_figure_21_has_every_set_up_and_efficiency(rows) -> None:  # type: ignore[no-untyped-def]
    assert set(rows) == set(FIG_21) == {(one, other) for one in SET_UPS for other in EFFICIENCIES}


@pytest.mark.parametrize(("set_up", "efficiency"), FIG_21)
def test_figure_21(rows, set_up: str, efficiency: str) -> None:  # type: ignore[no-untyped-def]
    row = rows[set_up, efficiency]
    assert row.closed_s == pytest.approx(FIG_21[set_up, efficiency], abs=0.005)
    assert row.first_s == pytest.approx(row.closed_s, rel=2e-3), "gather of the last part and latencies"
    further = 0 if set_up == "AllCache" else 2
    units = units_of("mistral_24b", FIG_21_BYTES)
    chunk_s = row.closed_s * max(chunk.size_bytes for chunk in cut_into_chunks(units)) / FIG_21_BYTES
    assert row.last_s - row.first_s == pytest.approx(further * chunk_s, rel=5e-3, abs=1e-4)
    assert row.last_small_s == pytest.approx(row.closed_s, rel=0.012)


def test_four_nics_carry_a_quarter_each_and_the_pairs_swap_it() -> None:
    topology = build(load_cluster("blitz_a"))
    fabric = fabric_of(topology)
    play(topology, four_nics(topology), fabric=fabric)
    for start in (topology.starts.nic_out, topology.starts.nic_in + 8, topology.starts.nvlink_in + 24):
        carried = [fabric.carried_bytes(start + nic, PARAMETERS) for nic in range(8)]
        assert carried == pytest.approx([FIG_21_BYTES / 4] * 4 + [0.0] * 4, abs=100)


def test_two_nics_carry_half_of_each_chain() -> None:
    topology = build(load_cluster("blitz_a"))
    fabric = fabric_of(topology)
    play(topology, two_nics(topology), fabric=fabric)
    carried = [fabric.carried_bytes(topology.starts.nic_out + nic, PARAMETERS) for nic in range(8)]
    assert carried == pytest.approx([FIG_21_BYTES / 2] * 4 + [0.0] * 4, abs=100)
    assert fabric.carried_bytes(topology.starts.nvlink_out, PARAMETERS) == 0


# Interference


@pytest.mark.parametrize("share", SHARES)
def test_steady_kv_slows_parameters_as_the_curve_says(share: float) -> None:
    assert slowdown(share) == pytest.approx(1 / (1 - min(share, 0.5)), rel=1e-9)


@pytest.mark.parametrize("share", SHARES)
def test_batches_of_kv_slow_parameters_alike(share: float) -> None:
    """The load may end within a batch's period: 20 ms of at least 1.28 s."""
    assert slowdown_in_batches(share) == pytest.approx(1 / (1 - min(share, 0.5)), rel=5e-3)


@pytest.mark.parametrize("share", SHARES)
def test_parameters_that_yield_get_what_kv_leaves(share: float) -> None:
    assert slowdown(share, priority=1) == pytest.approx(1 / (1 - share), rel=1e-9)


@pytest.mark.parametrize("share", SHARES)
def test_a_pruned_source_is_not_slowed(share: float) -> None:
    assert slowdown(share, pruned=True) == pytest.approx(1.0, rel=1e-9)


def test_a_third_of_the_way_out_makes_the_load_half_as_long_again() -> None:
    assert slowdown(1 / 3) == pytest.approx(1.5, rel=1e-9)


# Closed forms


def test_16_gb_from_the_ssd_over_10_gbps() -> None:
    topology = exact(load_cluster("blitz_a"))
    units = units_of("llama3_8b", 16 * GB)
    assert sum(unit.size_bytes for unit in units) == 16 * GB
    straight = Chain(units, [hop(topology, gpu_ssd(3), gpu(3))])
    assert alone_s(topology, straight) == pytest.approx(12.8, rel=1e-9)
    staged = [hop(topology, gpu_ssd(3), dram(0)), hop(topology, dram(0), gpu(3))]
    last = cut_into_chunks(units)[-1].size_bytes
    assert alone_s(topology, Chain(units, staged)) == pytest.approx(12.8 + last / (128 * GBPS), rel=1e-9)
    assert alone_s(topology, Chain(units, staged, sequential=True)) == pytest.approx(12.8 + 1.0, rel=1e-9)


FAST_PCIE = """
hosts: 1
gpus_per_host: 4
gpu: a100_80g
source: made up
host_memory: {bytes: 1.0e+12, source: made up}
pcie: {gbps: 576, source: made up}
"""


def test_144_gb_on_four_gpus_over_576_gbps_each(tmp_path: Path) -> None:
    (tmp_path / "fast.yaml").write_text(FAST_PCIE)
    topology = exact(load_cluster(str(tmp_path / "fast.yaml")))
    units = units_of("qwen2_5_72b", 144 * GB)
    ranks = [Chain(shard(units, 4, one), [hop(topology, dram(0), gpu(one))], rank=one) for one in range(4)]
    assert alone_s(topology, Ranks(ranks)) == pytest.approx(0.5, rel=1e-9)


def test_an_edge_of_four_nics_is_what_figure_21_is_about() -> None:
    """Two instances of a host to two of the next, by an action, as the catalogue counts the model's bytes."""
    topology = build(load_cluster("blitz_a"))
    gpus_of = [(8 * host + first, 8 * host + first + 1) for host in (0, 1, 2, 3) for first in (0, 2)]
    data = plane(topology, gpus_of, "mistral_24b")
    edges = [
        replace(sharded_load("mistral_24b", first, then, gpus_of), load=number)
        for number, (first, then) in enumerate(pairwise([(0, 1), (2, 3), (4, 5), (6, 7)]))
    ]
    facts = told(data, *((0.0, edge) for edge in edges))
    size_bytes = load_llm("mistral_24b").weight_bytes
    nic_rate, nvlink_rate = (
        next(link.rate_bytes_per_s for link in topology.links if link.kind == kind)
        for kind in ("nic", "nvlink")
    )
    closed_s = size_bytes / 4 / nic_rate
    assert closed_s == pytest.approx(FIG_21["four NICs", "shipped"] * size_bytes / FIG_21_BYTES, abs=0.005)
    assert [*whole(facts, 0).values()] == [pytest.approx(closed_s, rel=2e-3)] * 2
    chunks = cut_into_chunks(model_units(load_llm("mistral_24b")))
    part_bytes = max(chunk.size_bytes for chunk in chunks) / 4
    further_s = max(whole(facts, 2).values()) - max(whole(facts, 0).values())
    # For each further group a chunk, and its swap over NVLink.
    assert further_s == pytest.approx(2 * part_bytes * (1 / nic_rate + 1 / nvlink_rate), rel=2e-3)


def test_neighbours_on_a_pcie_switch_get_half_each_and_one_alone_gets_all() -> None:
    topology = exact(load_cluster("blitz_a_shared_pcie"))
    full_s = MODEL_BYTES / (256 * GBPS)

    def times(*gpus: int) -> list[float]:
        loads = [(0.0, load(("host", 0), ("replica", one), id=one)) for one in gpus]
        facts = told(plane(topology, [(one,) for one in range(8)]), *loads)
        return [whole(facts, one)[0] for one in gpus]

    assert times(0) == [pytest.approx(full_s, abs=NS)]
    assert times(0, 1) == [pytest.approx(2 * full_s, abs=NS)] * 2
    assert times(1, 2) == [pytest.approx(full_s, abs=NS)] * 2, "they are on two switches"


@pytest.mark.parametrize("cluster", ["blitz_a", "blitz_b", "blitz_a_shared_pcie"])
def test_the_two_directions_do_not_meet(cluster: str) -> None:
    topology = exact(load_cluster(cluster))
    there, back = (Chain(UNITS, [hop(topology, gpu(one), gpu(other))]) for one, other in ((0, 8), (8, 0)))
    times = [at_s for placement in play(topology, [there, back]) for at_s in placement.values()]
    assert times == [pytest.approx(MODEL_BYTES / (100 * GBPS), rel=1e-9)] * 2


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_shards_of_a_group_take_one_gth(count: int) -> None:
    topology = exact(load_cluster("blitz_a"))
    group = range(8, 8 + count)
    channels = tuple(hop(topology, gpu(one - 8), gpu(one)) for one in group)
    others = [tuple(other for other in group if other != one) for one in group]
    gathers = tuple(
        Hop(topology.broadcast(one, rest)) for one, rest in zip(group, others, strict=True) if rest
    )
    gather_s = cut_into_chunks(UNITS)[-1].size_bytes / count * (count - 1) / (1600 * GBPS)
    expected_s = MODEL_BYTES / count / (100 * GBPS) + gather_s
    assert alone_s(topology, group_chain(UNITS, [Group(channels, gathers)])) == pytest.approx(
        expected_s, rel=1e-6
    )
    assert gather_s < 2e-3


def test_nvlink_broadcasts_16_gb_to_the_eight_gpus_of_a_host_in_0_12_s() -> None:
    topology = build(load_cluster("blitz_a"))
    tree = Hop(
        topology.broadcast(0, tuple(range(1, 8))), latency_s=topology.latency_s(topology.path(gpu(0), gpu(1)))
    )
    found_s = alone_s(topology, broadcast(units_of("llama3_8b", 16 * GB), tree))
    assert found_s == pytest.approx(0.12, rel=0.01)
    assert found_s == pytest.approx(16 * GB / (1600 * GBPS * 0.67), rel=1e-3)


# A cluster of one's own: that of the page


def own(tmp_path: Path) -> Topology:
    (block,) = re.findall(
        r"cat > rack.yaml <<'EOF'\n(.*?)\n    EOF", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "mine.yaml").write_text(dedent(block))
    return exact(load_cluster(str(tmp_path / "mine.yaml")))


def spine_of(topology: Topology, path: tuple[int, ...]) -> str:
    (name,) = [topology.links[link].name for link in path if topology.links[link].kind == "leaf"]
    return name


def across(topology: Topology, spreads: list[int]) -> tuple[list[str], list[float]]:
    """(uplink, seconds) of 12.5 GB from each GPU of leaf 0 to its partner under leaf 1, all at once."""
    paths = [topology.path(gpu(one), gpu(one + 8), spread) for one, spread in enumerate(spreads)]
    second = [Unit("layer 0", 0, round(100 * GBPS))]
    found = play(topology, [Chain(second, [Hop(path)]) for path in paths])
    return [spine_of(topology, path) for path in paths], [placement[0] for placement in found]


def test_flows_share_the_uplink_that_the_hash_gave_them(tmp_path: Path) -> None:
    topology = own(tmp_path)
    for first in range(0, 80, 8):
        spines, times = across(topology, list(range(first, first + 8)))
        # An uplink carries two NICs' rate: eight NICs, oversubscribed twice, over two spines.
        assert times == [pytest.approx(max(1.0, spines.count(one) / 2)) for one in spines]


def test_an_even_spread_pays_the_oversubscription_and_no_spread_that_of_all_spines(tmp_path: Path) -> None:
    topology = own(tmp_path)

    def to_spine(number: int, one: int) -> int:
        name = f"leaf0 to spine{number}"
        return next(
            spread
            for spread in range(99)
            if spine_of(topology, topology.path(gpu(one), gpu(one + 8), spread)) == name
        )

    assert across(topology, [to_spine(one % 2, one) for one in range(8)])[1] == [pytest.approx(2.0)] * 8
    assert across(topology, [to_spine(0, one) for one in range(8)])[1] == [pytest.approx(4.0)] * 8


def test_transfers_between_two_replicas_spread_over_the_spines(tmp_path: Path) -> None:
    topology = own(tmp_path)
    data = plane(topology, [(0,), (8,)])
    told(data, *((0.0, Send(number, "kv", (), 0, 1, GB, "state")) for number in range(16)))
    paths = [topology.path(gpu(0), gpu(8), number) for number in range(16)]
    for link in {link for path in paths for link in path}:
        assert data.fabric.carried_bytes(link, KV) == pytest.approx(GB * sum(link in path for path in paths))
    assert len({spine_of(topology, path) for path in paths}) == 2


def test_below_one_leaf_nothing_is_oversubscribed(tmp_path: Path) -> None:
    topology = own(tmp_path)
    second = [Unit("layer 0", 0, round(100 * GBPS))]
    plans = [Chain(second, [hop(topology, gpu(one), gpu((one + 4) % 8))]) for one in range(8)]
    assert [placement[0] for placement in play(topology, plans)] == [pytest.approx(1.0)] * 8


# Conservation through the actions

TENTHS = st.integers(0, 30).map(lambda tenth: tenth / 10)


@settings(max_examples=40)
@given(
    loads=st.lists(st.tuples(st.integers(0, 3), TENTHS, TENTHS), max_size=4, unique_by=lambda one: one[0]),
    sends=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), TENTHS, TENTHS), max_size=5),
)
def test_bytes_are_conserved_whatever_is_stopped(
    loads: list[tuple[int, float, float]], sends: list[tuple[int, int, float, float]]
) -> None:
    topology = exact(load_cluster("blitz_b"))
    data = plane(topology, [(0,), (1,), (8,), (9,)])
    actions: list[tuple[float, Action]] = []
    for replica, at_s, after_s in loads:
        actions.append(
            (at_s, load(("host", replica // 2), ("replica", replica), id=replica, every_layer=True))
        )
        actions.append((at_s + after_s, StopLoad(replica, "stopped")))
    for number, (source, further, at_s, after_s) in enumerate(sends):
        actions.append((at_s, Send(number, "kv", (), source, (source + further) % 4, 10 * GB, "state")))
        actions.append((at_s + after_s, StopSend(number, "stopped")))
    facts = told(data, *actions)
    data.fabric.check()
    end_s = data.fabric.now_s
    moved = {fact.transfer: fact.moved_bytes for _, fact in facts if isinstance(fact, Sent)}
    assert set(moved) == set(range(len(sends)))
    for replica, place in enumerate((0, 1, 8, 9)):
        into = topology.starts.pcie_in + place
        expected = sum(moved[n] for n, (s, further, _, _) in enumerate(sends) if (s + further) % 4 == replica)
        assert data.fabric.carried_bytes(into, KV) == pytest.approx(expected, abs=len(sends) + 1)
        told_of = [f for _, f in facts if isinstance(f, Loaded) and f.load == replica]
        layers = max((fact.layers for fact in told_of), default=0)
        held = sum(unit.size_bytes for unit in UNITS[: layers + 1]) if layers else 0
        carried = data.fabric.carried_bytes(into, PARAMETERS)
        assert held <= carried + 1 and carried <= MODEL_BYTES + 1
        if any(fact.fully_loaded for fact in told_of):
            assert carried == pytest.approx(MODEL_BYTES, abs=1)
    for index, link in enumerate(topology.links):
        total = data.fabric.carried_bytes(index, KV) + data.fabric.carried_bytes(index, PARAMETERS)
        assert total <= link.rate_bytes_per_s * end_s * (1 + 1e-9) + 1
