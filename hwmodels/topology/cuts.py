"""How much a cluster moves at once, from many places to many, over how many paths, and what limits it.

This is a maximum flow over the graph of the cluster: what all its links together allow if every transfer
takes the best route. A path (``Topology.path``) is one route, so several transfers together reach this or
less. Nothing here runs while requests are served.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hwmodels.errors import HardwareError
from hwmodels.topology.graph import graph_of, node_of
from hwmodels.topology.link import Location
from hwmodels.topology.topology import Topology

if TYPE_CHECKING:
    from hwmodels.topology.graph import Graph

_STORAGE: Final = ("ssd", "gpu_ssd", "remote")
_ENDS: Final = ("gpu", "dram", "ssd")
_SOURCE, _TARGET = "all sources", "all targets"


@dataclass(frozen=True, slots=True)
class Cut:
    """The links with the least total rate that separate the targets from the sources.

    rate_bytes_per_s: their total, which is also the most that moves; infinite if no link is in between.
    links: their indices, empty if nothing moves or nothing limits.
    """

    rate_bytes_per_s: float
    links: tuple[int, ...]


def narrowest(topology: Topology, sources: Sequence[Location], targets: Sequence[Location]) -> Cut:
    """The narrowest cut between the two groups of places; GPUs and other hosts' memories forward nothing.

    From storage, bytes go through the memory of a GPU's host and no further. If several cuts are equally
    narrow, this is the one nearest to the targets. A NIC is used by the GPUs of the groups that own it and by
    their hosts' memories; if GPUs of several NICs share a PCIe switch, by all of them.

    Raises HardwareError for sources of which some are storage and some are not.
    """
    if len({place.kind in _STORAGE for place in sources}) > 1:
        raise HardwareError("storage and memory use different paths: write sources of only one of the two")
    if set(sources) & set(targets):
        return Cut(float("inf"), ())
    graph = _passable(topology, sources, targets)
    _join(graph, map(node_of, sources), map(node_of, targets))
    return _cut_of(topology, graph)


def disjoint_paths(topology: Topology, sources: Sequence[Location], targets: Sequence[Location]) -> int:
    """The number of paths from the sources to the targets that share no link (Menger's theorem).

    As many links must fail before nothing gets through. GPUs and memories in between forward nothing; NICs
    are those of ``narrowest``.
    """
    graph = _passable(topology, sources, targets)
    _join(graph, map(node_of, sources), map(node_of, targets))
    return _paths_in(graph)


def disjoint_paths_of_leaves(topology: Topology, leaf: int, other: int) -> int:
    """The number of paths between two leaf switches that share no link."""
    first = {
        leaf_number: host for host in reversed(topology.hosts) for leaf_number in leaves_of(topology, host)
    }
    graph = graph_of(topology, {first[leaf], first[other]})
    network = ("leaf", "spine")
    graph.remove_nodes_from([name for name in graph if graph.nodes[name]["kind"] not in network])
    _join(graph, (f"leaf{leaf}",), (f"leaf{other}",))
    return _paths_in(graph)


def leaves_of(topology: Topology, host: int) -> set[int]:
    """The leaf switches of a host's NICs."""
    return {topology.site(gpu).leaf for gpu in topology.gpus_of(host)} - {-1}


def multicast_cut(
    topology: Topology,
    sources: Sequence[Location],
    targets: Sequence[Sequence[Location]],
    everyone: Sequence[Sequence[Location]],
) -> Cut:
    """The narrowest of the cuts between all sources and one of ``targets``: no multicast is faster.

    The sources together have all bytes, and each target of ``everyone``, a group of GPUs, is to get all of
    them. Sources and targets copy and forward what they have. ``targets``: those whose cuts are compared, one
    of each kind. Whatever the routes, a target receives no faster than the maximum flow to it (Edmonds,
    "Edge-disjoint branchings", 1973: if every node forwards, the least of these flows is also reached;
    switches cannot copy, so here it is a bound). What the sources send together is one of the cuts.
    """
    graph = _passable(topology, sources, [place for target in everyone for place in target])
    cuts = []
    for target in targets:
        _join(graph, map(node_of, sources), map(node_of, target))
        cuts.append(_cut_of(topology, graph))
        graph.remove_nodes_from((_SOURCE, _TARGET))
    return min(cuts, key=lambda cut: cut.rate_bytes_per_s)


def _join(graph: "Graph", sources: Iterable[str], targets: Iterable[str]) -> None:
    """Add one node before all sources, and one behind all targets."""
    graph.add_edges_from((_SOURCE, name) for name in sources)
    graph.add_edges_from((name, _TARGET) for name in targets)


def _paths_in(graph: "Graph") -> int:
    import networkx

    for source, target, link in _edges(graph):
        graph[source][target].pop("capacity", None)
        if link is not None:
            graph[source][target]["capacity"] = 1
    return round(networkx.maximum_flow_value(graph, _SOURCE, _TARGET))


def _cut_of(topology: Topology, graph: "Graph") -> Cut:
    import networkx
    from networkx.algorithms.flow import boykov_kolmogorov

    try:
        # Rates in whole bytes per second: the search compares the remainder of a link with zero.
        _, (before, _) = networkx.minimum_cut(graph, _SOURCE, _TARGET, flow_func=boykov_kolmogorov)
    except networkx.NetworkXUnbounded:
        return Cut(float("inf"), ())
    crossing = (
        link for node, end, link in _edges(graph) if link is not None and node in before and end not in before
    )
    links = tuple(sorted(crossing))
    return Cut(sum(topology.links[link].rate_bytes_per_s for link in links), links)


def _passable(topology: Topology, sources: Sequence[Location], targets: Sequence[Location]) -> "Graph":
    """The graph without places that forward nothing between these places, each link with its rate."""
    ends = (*sources, *targets)
    names = {node_of(place) for place in ends}
    stored = any(place.kind in _STORAGE for place in sources)
    if stored:
        names |= {f"dram{topology.host_of(place)}" for place in targets}
    nics = {f"nic{topology.nic_of(place.number)}" for place in ends if place.kind == "gpu"}
    hosts = {topology.host_of(place) for place in ends if place.kind == "dram"}
    peers = all(any(place.kind == "gpu" for place in side) for side in (sources, targets))
    # No other host forwards, and bytes that every leaf spreads over its equal links need no other leaf.
    graph = graph_of(topology, {topology.host_of(place) for place in ends} - {-1})

    def passes(name: str) -> bool:
        about = graph.nodes[name]
        if about["kind"] == "nic":
            return not stored and (name in nics or about["host"] in hosts)
        if about["kind"] == "host":  # the route between two GPUs, which bytes of a memory do not take
            return peers
        return about["kind"] not in _ENDS or name in names

    graph.remove_nodes_from([name for name in graph if not passes(name)])
    for source, target, link in _edges(graph):
        if link is not None:
            graph[source][target]["capacity"] = round(topology.links[link].rate_bytes_per_s)
    return graph


def _edges(graph: "Graph") -> Iterable[tuple[str, str, int | None]]:
    """Yield (from, to, link of the edge)."""
    edges: Iterable[tuple[str, str, int | None]] = graph.edges(data="link")
    return edges
