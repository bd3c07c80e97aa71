"""Ways of a cluster that has lost cables: another NIC, another spine, or nothing; who is cut off."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.topology.cables import cables_of
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.damage import cut_off, damaged
from hwmodels.topology.link import dram, gpu
from hwmodels.topology.topology import Topology, build


def lost(topology: Topology, *names: str) -> Topology:
    cables = {cable.name: cable for cable in cables_of(topology)}
    return damaged(topology, [link for name in names for link in cables[name].links])


def kinds(topology: Topology, path: tuple[int, ...]) -> list[str]:
    return [topology.links[link].name for link in path]


def spined(spines: int) -> Topology:
    spec = load_cluster("blitz_b_2x4")
    return build(replace(spec, leaves=replace(spec.leaves, rails=True, spines=spines)))


def test_cables_are_the_nics_in_order_then_those_between_switches() -> None:
    topology = spined(2)
    names = [cable.name for cable in cables_of(topology)]
    assert names[:2] == ["host0/nic0", "host0/nic1"] and "leaf0-spine1" in names
    for cable in cables_of(topology):
        ends = sorted(kinds(topology, cable.links))
        assert len(ends) == 2 and (cable.nic >= 0) == ("nic" in ends[0])


def test_a_gpu_behind_a_lost_nic_takes_the_next_one_of_its_host() -> None:
    whole = build(load_cluster("blitz_b_2x4"))
    broken = lost(whole, "host0/nic0")
    usual, other = whole.path(gpu(0), gpu(4)), broken.path(gpu(0), gpu(4))
    assert "host0/nic0 nic out" in kinds(whole, usual)
    assert "host0/nic1 nic out" in kinds(broken, other) and other[0] == usual[0] and other[-1] == usual[-1]
    assert broken.path(gpu(1), gpu(5)) == whole.path(gpu(1), gpu(5)), "others keep their way"
    assert broken.path(gpu(0), gpu(1)) == whole.path(gpu(0), gpu(1))


def test_between_leaves_another_spine_is_taken() -> None:
    whole = spined(2)
    usual = whole.path(gpu(0), gpu(5))
    spine = next(name for name in kinds(whole, usual) if "to spine" in name)
    leaf, _, number = spine.partition(" to spine")
    broken = lost(whole, f"{leaf}-spine{number}")
    other = kinds(broken, broken.path(gpu(0), gpu(5)))
    assert spine not in other and any("to spine" in name for name in other)


def test_a_host_without_nics_is_cut_off_and_the_larger_side_stays() -> None:
    topology = lost(build(load_cluster("blitz_b_4x2")), "host2/nic0", "host2/nic1")
    assert cut_off(topology, range(4)) == [2]
    with pytest.raises(HardwareError, match="no path is left from gpu 4 to gpu 0 because links are lost"):
        topology.path(gpu(4), gpu(0))
    assert cut_off(lost(topology, "host0/nic0"), range(4)) == [2], "one of two NICs does for a host"


def test_of_two_hosts_the_one_whose_nics_are_lost_is_cut_off() -> None:
    whole = build(load_cluster("blitz_b_2x4"))
    for host in (0, 1):
        assert cut_off(lost(whole, *(f"host{host}/nic{nic}" for nic in range(4))), range(2)) == [host]


@given(st.sampled_from(["blitz_b_2x4", "blitz_a_4x2", "llumnix_4x4"]), st.data())
def test_no_way_crosses_what_is_lost_and_who_stays_reaches_who_stays(name: str, data: st.DataObject) -> None:
    whole = build(load_cluster(name))
    names = [cable.name for cable in cables_of(whole)]
    broken = lost(whole, *data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6)))
    gone = set(cut_off(broken, whole.hosts))
    stay = [host for host in whole.hosts if host not in gone]
    assert stay
    for host in stay:
        for other in stay:
            first, second = gpu(whole.gpus_of(host)[0]), gpu(whole.gpus_of(other)[-1])
            for path in (broken.path(dram(host), dram(other)), broken.path(first, second)):
                assert broken.lost.isdisjoint(path)  # type: ignore[attr-defined]
