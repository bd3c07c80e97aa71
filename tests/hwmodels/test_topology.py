"""Topologies: paths and rates worked out by hand, sharing, broadcasts, and what is refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.topology.cluster_file import cluster_names, load_cluster, parse_cluster
from hwmodels.topology.link import REMOTE, Location, dram, gpu, gpu_ssd, ssd
from hwmodels.topology.spec import Rate, at_efficiency, hosts_x_gpus
from hwmodels.topology.topology import Topology, build
from tests.worlds.refusals import refuses

GBPS = 1e9 / 8
SMALL = """
hosts: 4
gpus_per_host: 4
gpu: a10
source: made up
host_memory: {bytes: 1.0e+12, source: made up}
pcie: {gbps: 100, source: made up}
nic: {gbps: 50, source: made up}
"""


def small(extra: str = "", *lines_out: str) -> Topology:
    """Four hosts of four GPUs; ``lines_out`` are keys to leave out."""
    kept = [line for line in SMALL.splitlines() if line.partition(":")[0] not in lines_out]
    return build(parse_cluster("small", "small.yaml", "\n".join([*kept, extra])))


def shipped(name: str) -> Topology:
    return build(load_cluster(name))


def names(topology: Topology, path: tuple[int, ...]) -> list[str]:
    return [topology.links[link].name for link in path]


def ideal_s(topology: Topology, path: tuple[int, ...], size_bytes: float) -> float:
    """Seconds by the datasheets alone."""
    exact = build(at_efficiency(1.0, topology.spec))
    return size_bytes / exact.rate_bytes_per_s(path)


def test_paths_inside_a_host_with_nvlink() -> None:
    a = shipped("blitz_a")
    assert names(a, a.path(gpu(9), gpu(10))) == ["host1/gpu1 nvlink out", "host1/gpu2 nvlink in"]
    assert names(a, a.path(dram(1), gpu(9))) == ["host1/gpu1 pcie in"]
    assert names(a, a.path(gpu(9), dram(1))) == ["host1/gpu1 pcie out"]
    assert names(a, a.path(gpu_ssd(9), dram(1))) == ["host1/gpu1 ssd"]
    assert names(a, a.path(gpu_ssd(9), gpu(9))) == ["host1/gpu1 ssd", "host1/gpu1 pcie in"]
    assert a.path(gpu(9), gpu(9)) == a.path(dram(1), dram(1)) == ()


def test_gpudirect_crosses_the_pcie_links_of_both_gpus() -> None:
    a = shipped("blitz_a")
    ends = ["host0/gpu0 pcie out", "host0/nic0 nic out", "host1/nic1 nic in", "host1/gpu1 pcie in"]
    assert names(a, a.path(gpu(0), gpu(9))) == ends
    shared = shipped("blitz_a_shared_pcie")
    assert names(shared, shared.path(gpu(1), gpu(10))) == [
        "host0/gpu1 pcie out", "host0/switch0 pcie_switch out", "host0/nic1 nic out",
        "host1/nic2 nic in", "host1/switch1 pcie_switch in", "host1/gpu2 pcie in",
    ]  # fmt: skip


def test_a_host_copy_leaves_by_the_nic_of_the_targets_number() -> None:
    a = shipped("blitz_a")
    assert names(a, a.path(dram(0), gpu(11))) == [
        "host0/nic3 nic out",
        "host1/nic3 nic in",
        "host1/gpu3 pcie in",
    ]
    assert names(a, a.path(gpu(11), dram(0))) == [
        "host1/gpu3 pcie out",
        "host1/nic3 nic out",
        "host0/nic3 nic in",
    ]
    copies = {a.path(dram(0), dram(2), spread) for spread in range(100)}
    assert len(copies) == 8, "several copies between two hosts use all NICs"


def test_gpus_without_nvlink_reach_each_other_over_pcie() -> None:
    b = shipped("blitz_b")
    peers = b.path(gpu(0), gpu(3))
    assert names(b, peers) == ["host0/gpu0 pcie out", "host0/gpu3 pcie in"]
    assert ideal_s(b, peers, 256 * GBPS) == 1.0
    assert ideal_s(b, b.path(dram(0), gpu(3)), 128 * GBPS) == 1.0, "towards the host it is half"
    shared = small("pcie: {gbps: 100, shared_by: 2, source: made up}", "pcie")
    assert names(shared, shared.path(gpu(0), gpu(1))) == ["host0/gpu0 pcie out", "host0/gpu1 pcie in"]
    assert names(shared, shared.path(gpu(0), gpu(2))) == [
        "host0/gpu0 pcie out", "host0/switch0 pcie_switch out",
        "host0/switch1 pcie_switch in", "host0/gpu2 pcie in",
    ]  # fmt: skip


def test_between_leaves_the_hash_picks_a_spine() -> None:
    found = small("leaf: {hosts: 2, spines: 4, oversubscription: 2, source: made up}")
    assert [found.site(index).leaf for index in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert len(found.path(gpu(0), gpu(7))) == 4, "inside a leaf nothing but the NICs limits"
    paths = [found.path(gpu(0), gpu(8), spread) for spread in range(400)]
    assert names(found, paths[0])[2:4] in [[f"leaf0 to spine{k}", f"spine{k} to leaf1"] for k in range(4)]
    used = {path: paths.count(path) for path in paths}
    assert len(used) == 4 and min(used.values()) > 60
    assert found.path(gpu(0), gpu(8), 7) == paths[7]
    uplink = found.links[paths[0][2]]
    assert uplink.capacity_bytes_per_s == pytest.approx(8 * 50 * GBPS / 2 / 4), "8 NICs, 2:1, 4 spines"


def test_the_hash_is_the_same_in_every_process() -> None:
    code = (
        "from tests.hwmodels.test_topology import small, gpu\n"
        "t = small('leaf: {hosts: 1, spines: 5, source: made up}')\n"
        "print([t.path(gpu(0), gpu(15), spread) for spread in range(20)])"
    )
    here = small("leaf: {hosts: 1, spines: 5, source: made up}")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2], env={"PYTHONHASHSEED": "77"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str([here.path(gpu(0), gpu(15), spread) for spread in range(20)])


def test_rails_give_each_nic_of_a_host_its_own_leaf() -> None:
    dgx = shipped("dgx_h100")
    assert [dgx.site(index).leaf for index in (0, 1, 7, 8, 9)] == [0, 1, 7, 0, 1]
    assert len(dgx.path(gpu(0), gpu(8))) == 4
    assert len(dgx.path(gpu(0), gpu(9))) == 6, "another rail is over a spine"
    assert len(dgx.path(dram(0), gpu(9))) == 3, "a host copy takes the target's rail"


def test_storage_that_is_shared() -> None:
    found = small("ssd: {gbps: 8, per: host, source: x}\nremote: {gbps: 3, per: gpu, source: x}")
    assert names(found, found.path(found.ssd_of(5), gpu(5))) == ["host1 ssd", "host1/gpu1 pcie in"]
    assert found.ssd_of(5) == found.ssd_of(6) == ssd(1)
    (store,) = found.path(REMOTE, dram(2))
    assert found.links[store].capacity_bytes_per_s == pytest.approx(4 * 3 * GBPS), "that of four GPUs"
    whole = small("remote: {gbps: 3, per: cluster, source: x}")
    assert whole.path(REMOTE, dram(2)) == whole.path(REMOTE, dram(0))
    assert whole.path(REMOTE, gpu(2))[0] == whole.path(REMOTE, dram(0))[0]


def test_host_memory_is_on_the_path_where_it_has_a_rate() -> None:
    found = small("dram: {gbps: 90, source: x}\nssd: {gbps: 8, per: host, source: x}")
    assert names(found, found.path(dram(1), dram(1))) == ["host1 dram out", "host1 dram in"]
    assert names(found, found.path(ssd(1), gpu(4))) == [
        "host1 ssd", "host1 dram in", "host1 dram out", "host1/gpu0 pcie in",
    ]  # fmt: skip
    assert names(found, found.path(gpu(4), dram(1))) == ["host1/gpu0 pcie out", "host1 dram in"]


@pytest.mark.parametrize(
    ("cluster", "source", "target", "size_bytes", "seconds"),
    [
        ("blitz_a", gpu_ssd(0), gpu(0), 16e9, 12.8),
        ("blitz_a", dram(0), gpu(0), 16e9, 1.0),
        ("blitz_a", gpu(0), gpu(8), 16e9, 1.28),
        ("blitz_a", gpu(0), gpu(1), 16e9, 0.08),
        ("blitz_a_shared_pcie", dram(0), gpu(0), 16e9, 0.5),
        ("quart", ssd(0), dram(0), 43e9, 43 / 0.96),
        ("quart", dram(0), gpu(0), 5.36e9, 0.8),
        ("p5_48xlarge", gpu(0), gpu(8), 50e9, 1.0),
        ("llumnix", gpu(0), gpu(4), 8e9, 1.0),
    ],
)
def test_seconds_by_the_datasheet(
    cluster: str, source: Location, target: Location, size_bytes: float, seconds: float
) -> None:
    found = shipped(cluster)
    assert ideal_s(found, found.path(source, target), size_bytes) == pytest.approx(seconds, rel=1e-12)


def test_efficiencies_of_the_three_classes() -> None:
    a = shipped("blitz_a")
    assert 16e9 / a.rate_bytes_per_s(a.broadcast(0, tuple(range(1, 8)))) == pytest.approx(0.12, rel=0.01)
    assert 24e9 / a.rate_bytes_per_s(a.path(dram(0), gpu(0))) == pytest.approx(2.0)
    assert 14e9 / (2 * a.rate_bytes_per_s(a.path(gpu(0), gpu(8)))) == pytest.approx(0.65, rel=0.01)


def test_a_broadcast_leaves_once_and_arrives_everywhere() -> None:
    a = shipped("blitz_a")
    assert names(a, a.broadcast(8, (9, 11))) == [
        "host1/gpu0 nvlink out", "host1/gpu1 nvlink in", "host1/gpu3 nvlink in",
    ]  # fmt: skip
    for source, targets in ((8, ()), (8, (8,)), (8, (9, 9)), (8, (16,)), (8, (7,))):
        refuses(HardwareError, "GPUs 8 to 15", a.broadcast, source, targets)
    refuses(HardwareError, "has none", shipped("blitz_b").broadcast, 0, (1,))


def test_domains_smaller_and_larger_than_a_host() -> None:
    pairs = small("nvlink: {gbps: 400, domain_gpus: 2, source: x}")
    assert list(pairs.scale_up_group(5)) == [4, 5]
    assert names(pairs, pairs.path(gpu(4), gpu(6))) == ["host1/gpu0 pcie out", "host1/gpu2 pcie in"]
    rack = small("nvlink: {gbps: 400, domain_gpus: 12, source: x}")
    assert list(rack.scale_up_group(5)) == list(range(12))
    assert list(rack.scale_up_group(13)) == [12, 13, 14, 15], "the last domain has what is left"
    assert len(rack.path(gpu(0), gpu(11))) == 2
    assert list(small().scale_up_group(5)) == [4, 5, 6, 7], "without NVLink the host"


def test_who_shares_what() -> None:
    vm = shipped("llumnix")
    assert [vm.nic_of(index) for index in (0, 3, 4)] == [0, 0, 1]
    assert list(vm.gpus_on_nic(1)) == list(vm.gpus_of(1)) == [4, 5, 6, 7]
    shared = shipped("blitz_b_shared_pcie")
    assert list(shared.gpus_on_switch(shared.site(5).switch)) == [4, 5]
    assert set(shared.path(dram(0), gpu(4))) & set(shared.path(dram(0), gpu(5))), "one uplink for two"
    assert not set(shared.path(dram(0), gpu(5))) & set(shared.path(dram(0), gpu(6)))
    assert not set(shared.path(dram(0), gpu(5))) & set(shared.path(gpu(5), dram(0))), "full duplex"


def test_latency_is_that_of_the_links() -> None:
    a = shipped("blitz_a")
    path = a.path(gpu(0), gpu(8))
    assert a.latency_s(path) == sum(a.spec.classes[a.links[link].kind].latency_s for link in path)
    assert 1e-6 < a.latency_s(path) < 1e-5 and a.latency_s(()) == 0.0


@pytest.mark.parametrize("name", cluster_names())
def test_every_shipped_cluster_can_load_and_says_where_from(name: str) -> None:
    found = shipped(name)
    last = found.spec.gpus - 1
    for source in (found.ssd_of(last), dram(found.spec.hosts - 1)):
        assert 0 < found.rate_bytes_per_s(found.path(source, gpu(last))) < 1e12
    assert len({link.name for link in found.links}) == len(found.links)
    assert all(link.source for link in found.links)


def test_the_clusters_of_the_papers_are_there() -> None:
    table_1_and_2 = {
        "blitz_a": 32, "blitz_b": 16, "a2_ultragpu_8g": 32, "p4d_24xlarge": 32, "ml_hpcpni2_28xlarge": 32,
        "p4de_24xlarge": 32, "a3_highgpu_8g": 32, "a3_megagpu_8g": 32, "p5_48xlarge": 32, "llumnix": 16,
        "quart": 48, "dgx_h100": 32, "dgx_h200": 32, "local": 2, "hgx_b200": 32, "hgx_b300": 32,
        "gb200_nvl72": 72, "gb300_nvl72": 72,
    }  # fmt: skip
    assert {name: load_cluster(name).gpus for name in table_1_and_2} == table_1_and_2


def test_hosts_x_gpus() -> None:
    grown = hosts_x_gpus(3, 4, load_cluster("blitz_a"))
    assert (grown.gpus, grown.domain_gpus, grown.nics_per_host) == (12, 4, 4)
    assert hosts_x_gpus(2, 8, load_cluster("llumnix")).gpus_per_nic == 8, "one connection per host, as before"
    assert load_cluster("blitz_a_3x4") == grown
    with pytest.raises(HardwareError, match=r"pcie\.shared_by is 2; write a divisor of the 3 GPUs"):
        load_cluster("blitz_a_shared_pcie_2x3")
    refuses(HardwareError, "gpus_per_host is 0", hosts_x_gpus, 2, 0, load_cluster("blitz_a"))
    refuses(HardwareError, "write at most 131072", load_cluster, "blitz_a_99999x8")


def test_changes_of_a_cluster_in_code() -> None:
    slow = Rate(256 * GBPS, "set by the caller")
    shared = build(replace(load_cluster("blitz_a"), pcie=slow, pcie_shared_by=2))
    assert ideal_s(shared, shared.path(dram(0), gpu(0)), 16e9) == 0.5
    assert build(at_efficiency(0.77, shared.spec, "nic")).spec.classes["pcie"].efficiency == 0.75
    refuses(HardwareError, r"efficiency\.nic is 2", at_efficiency, 2.0, shared.spec, "nic")


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (gpu(0), gpu(16), "no GPU 16; write 0 to 15"),
        (gpu(-1), gpu(0), "no GPU -1"),
        (dram(4), gpu(0), "no dram 4; write dram 0 to 3"),
        (dram(0), gpu(-1), "no gpu -1"),
        (ssd(0), gpu(0), "no ssd 0; small.yaml has none"),
        (REMOTE, gpu(0), "no remote 0"),
        (gpu_ssd(0), gpu(4), "no path of links from gpu_ssd 0 to gpu 4"),
        (dram(0), gpu_ssd(0), "write a GPU or host memory as target"),
        (Location("disk", 0), gpu(0), "place 'disk' is unknown; write one of gpu"),
    ],
)
def test_places_that_are_refused(source: Location, target: Location, said: str) -> None:
    refuses(HardwareError, said, small("ssd: {gbps: 8, source: x}").path, source, target)


def test_links_grow_with_the_gpus_not_with_their_pairs() -> None:
    found = shipped("dgx_h100_512x8")
    assert len(found.gpus) == 4096 and len(found.links) < 8 * 4096
    assert {len(found.path(gpu(index), gpu(4095 - index), index)) for index in range(4096)} == {6}
