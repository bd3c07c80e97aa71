"""Paths computed by arithmetic against searches in the graph of the same cluster, over drawn clusters."""

import math
from collections import Counter

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.graph import graph_of, node_of
from hwmodels.topology.link import Location
from hwmodels.topology.spec import ClusterSpec
from hwmodels.topology.topology import Topology, build
from tests.worlds.drawn_clusters import places, specs

END_KINDS = ("gpu", "dram", "ssd", "remote")


def allowed(topology: Topology, source: Location, target: Location) -> "networkx.DiGraph[str]":
    """Without the places that pass nothing on, and without NICs that are not those of the ends.

    A host's memory may use any NIC of its host. What is stored reaches a GPU through its host's memory.
    """
    graph = graph_of(topology)
    ends = {node_of(source), node_of(target)}
    if source.kind in ("ssd", "gpu_ssd", "remote"):
        ends.add(f"dram{topology.host_of(target)}")
    nics = {f"nic{topology.nic_of(end.number)}" for end in (source, target) if end.kind == "gpu"}
    hosts = {topology.host_of(end) for end in (source, target) if end.kind == "dram"}

    def passes(name: str) -> bool:
        about = graph.nodes[name]
        if about["kind"] == "nic":
            return name in nics or about["host"] in hosts
        return about["kind"] not in END_KINDS or name in ends or name == "remote out"

    return graph.subgraph([name for name in graph if passes(name)])


def walk(graph: "networkx.DiGraph[str]", start: str, path: tuple[int, ...]) -> set[str]:
    """Where one can be after crossing these links in this order, free edges in between."""
    at = {start}
    for link in (*path, None):
        grown = set(at)
        frontier = list(at)
        while frontier:
            name = frontier.pop()
            free = {end for _, end, hop in graph.out_edges(name, data="hop") if not hop} - grown
            grown |= free
            frontier += free
        if link is None:
            return grown
        at = {end for name in grown for _, end, found in graph.out_edges(name, data="link") if found == link}
    raise AssertionError


def check(topology: Topology, source: Location, target: Location, spread: int) -> None:
    graph = allowed(topology, source, target)
    try:
        path = topology.path(source, target, spread)
    except HardwareError:
        assert target.kind not in ("gpu", "dram") or not networkx.has_path(
            graph, node_of(source), node_of(target)
        )
        return
    if source == target:
        return
    assert len(set(path)) == len(path)
    assert node_of(target) in walk(graph, node_of(source), path)
    hops = networkx.shortest_path_length(graph, node_of(source), node_of(target), weight="hop")
    assert len(path) == hops
    assert 0 < topology.rate_bytes_per_s(path) <= math.inf


@settings(max_examples=40)
@given(spec=specs(), data=st.data())
def test_every_path_is_a_shortest_one_of_the_graph(spec: ClusterSpec, data: st.DataObject) -> None:
    topology = build(spec)
    ends = st.sampled_from(places(topology))
    for _ in range(4):
        check(topology, data.draw(ends), data.draw(ends), data.draw(st.integers(-5, 1 << 70)))


@settings(max_examples=30)
@given(spec=specs())
def test_the_graph_holds_every_link_once_with_its_kind(spec: ClusterSpec) -> None:
    topology = build(spec)
    edges = Counter(link for *_, link in graph_of(topology).edges(data="link") if link is not None)
    assert edges == Counter(range(len(topology.links)))
    wanted = {"pcie": 2 * spec.gpus, "nvlink": 2 * spec.gpus * (spec.nvlink is not None)}
    wanted |= {"nic": 2 * spec.hosts * spec.nics_per_host, "dram": 2 * spec.hosts * (spec.dram is not None)}
    kinds = Counter(link.kind for link in topology.links)
    assert {kind: kinds[kind] for kind in wanted} == wanted
    assert kinds["leaf"] == kinds["spine"] == topology.counts.leaves * topology.counts.up_spines


@settings(max_examples=30)
@given(spec=specs())
def test_groups_leaves_and_nics_split_the_gpus(spec: ClusterSpec) -> None:
    topology = build(spec)
    for index in range(spec.gpus):
        group = topology.scale_up_group(index)
        assert index in group and all(topology.scale_up_group(other) == group for other in group)
        assert index in topology.gpus_on_switch(topology.site(index).switch)
        if spec.nic:
            assert index in topology.gpus_on_nic(topology.nic_of(index))
            assert 0 <= topology.site(index).leaf < topology.counts.leaves


@settings(max_examples=30)
@given(spec=specs())
def test_leaves_give_up_no_more_than_the_oversubscription(spec: ClusterSpec) -> None:
    topology = build(spec)
    if not topology.counts.up_spines:
        return
    into = Counter(topology.leaf_of_nic(nic) for nic in range(topology.counts.nics))
    assert spec.nic is not None
    for leaf in range(topology.counts.leaves):
        first = topology.starts.leaf_up + leaf * spec.leaves.spines
        up = sum(topology.links[first + spine].capacity_bytes_per_s for spine in range(spec.leaves.spines))
        need = into[leaf] * spec.nic.bytes_per_s / spec.leaves.oversubscription
        assert up == pytest.approx(need) or (up > need and into[leaf] < topology.counts.leaf_nics)


@pytest.mark.parametrize("name", ["blitz_a", "blitz_b_shared_pcie", "dgx_h100", "llumnix", "quart", "local"])
def test_shipped_clusters_too(name: str) -> None:
    topology = build(load_cluster(name))
    ends = places(topology)
    for source in ends[:: max(1, len(ends) // 6)]:
        for target in ends[:: max(1, len(ends) // 5)]:
            check(topology, source, target, 3)
