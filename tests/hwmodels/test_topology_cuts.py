"""The narrowest cut between places of drawn clusters: every path crosses it, and it carries any one path."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.cuts import narrowest
from hwmodels.topology.link import REMOTE, Location, dram, gpu
from hwmodels.topology.spec import ClusterSpec, Leaves
from hwmodels.topology.topology import Path, Topology, build
from tests.worlds.drawn_clusters import places, specs

GBPS = 1e9 / 8


def path_or_none(topology: Topology, source: Location, target: Location, spread: int = 0) -> Path | None:
    try:
        return topology.path(source, target, spread)
    except HardwareError:
        return None


@settings(max_examples=33)
@given(spec=specs(), data=st.data())
def test_every_path_crosses_the_cut(spec: ClusterSpec, data: st.DataObject) -> None:
    topology = build(spec)
    ends = [end for end in places(topology) if end.kind in ("gpu", "dram")]
    targets = data.draw(st.lists(st.sampled_from(ends), min_size=1, max_size=6, unique=True))
    stored = data.draw(st.booleans())
    others = [end for end in places(topology) if (end not in ends) == stored and end not in targets]
    if not others:
        return
    sources = data.draw(st.lists(st.sampled_from(others), min_size=1, max_size=6, unique=True))
    cut = narrowest(topology, sources, targets)
    spread = data.draw(st.integers(0, 99))
    paths = [path_or_none(topology, source, target, spread) for source in sources for target in targets]
    if math.isfinite(cut.rate_bytes_per_s):
        rates = [topology.links[link].rate_bytes_per_s for link in cut.links]
        assert cut.rate_bytes_per_s == sum(rates)
        assert all(path is None or set(path) & set(cut.links) for path in paths)
    fastest = max((topology.rate_bytes_per_s(path) for path in paths if path is not None), default=0.0)
    assert cut.rate_bytes_per_s >= fastest * (1 - 1e-6)


@settings(max_examples=33)
@given(spec=specs(), data=st.data())
def test_where_one_way_leads_the_cut_is_its_narrowest_link(spec: ClusterSpec, data: st.DataObject) -> None:
    spec = replace(spec, nvlink=None, leaves=replace(spec.leaves, spines=1))
    topology = build(spec)
    source = data.draw(st.sampled_from([end for end in places(topology) if end.kind != "dram"]))
    target = data.draw(st.sampled_from([gpu(index) for index in range(spec.gpus)]))
    path = path_or_none(topology, source, target)
    if source == target or path is None:
        return
    rate = narrowest(topology, [source], [target]).rate_bytes_per_s
    assert rate == pytest.approx(topology.rate_bytes_per_s(path), rel=1e-6)


def halves(topology: Topology) -> tuple[list[Location], list[Location]]:
    gpus = [gpu(index) for index in range(topology.spec.gpus)]
    return gpus[: len(gpus) // 2], gpus[len(gpus) // 2 :]


def test_leaves_that_are_oversubscribed_limit_before_the_nics_do() -> None:
    """Two leaves of 16 NICs of 100 Gbps, of which 86 are reached; a quarter of the 1,600 goes up."""
    spec = load_cluster("blitz_a")
    one = build(spec)
    assert narrowest(one, *halves(one)).rate_bytes_per_s == pytest.approx(16 * 86 * GBPS)
    two = build(replace(spec, leaves=Leaves(hosts=2, spines=2, oversubscription=4.0, source="drawn")))
    cut = narrowest(two, *halves(two))
    assert cut.rate_bytes_per_s == pytest.approx(400 * GBPS)
    assert {two.links[link].kind for link in cut.links} <= {"leaf", "spine"} and len(cut.links) == 2


def test_what_one_store_sends_is_not_more_for_more_targets() -> None:
    topology = build(load_cluster("a3_highgpu_8g"))
    (first,) = {narrowest(topology, [REMOTE], [gpu(index)]).rate_bytes_per_s for index in (0, 9, 31)}
    host = narrowest(topology, [REMOTE], [gpu(index) for index in range(8)])
    assert host.rate_bytes_per_s == first and len(host.links) == 1
    both = narrowest(topology, [REMOTE], [gpu(0), gpu(8)])
    assert both.rate_bytes_per_s == 2 * first


def test_a_place_on_both_sides_has_no_cut_and_storage_does_not_mix() -> None:
    topology = build(load_cluster("blitz_a"))
    assert narrowest(topology, [gpu(0), gpu(1)], [gpu(1)]).rate_bytes_per_s == math.inf
    with pytest.raises(HardwareError, match="write sources of only one of the two"):
        narrowest(topology, [topology.ssd_of(0), dram(0)], [gpu(1)])
