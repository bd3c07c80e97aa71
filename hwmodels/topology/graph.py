"""A topology as a directed graph, for searches: the narrowest cuts, and the tests of paths.

Nodes have ``kind`` and ``host`` (-1 in the network). An edge has ``link``, the index of its link, or None if
nothing limits it; ``hop`` is 1 or 0 accordingly. GPUs, memories and stores forward only what is staged in
them, and a GPU uses no NIC but its own: a search for paths leaves the others out.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from hwmodels.topology.link import Location
from hwmodels.topology.topology import Topology

if TYPE_CHECKING:
    import networkx

    Graph = networkx.DiGraph[str]


def node_of(place: Location) -> str:
    """The node of a place."""
    return "remote" if place.kind == "remote" else f"{place.kind.removeprefix('gpu_')}{place.number}"


def graph_of(topology: Topology, hosts: Collection[int] | None = None) -> "Graph":
    """Nodes: ``gpu3``, ``pcie3`` (its port), ``switch1``, ``nic5``, ``leaf0``, ``spine1``, ``nvlink0``.

    Also ``ssd0``, ``remote``, ``dram0`` with ``memory0 in`` and ``memory0 out``, and ``host0``, the PCIe
    between the GPUs of a host. ``hosts``: only these, with their leaves; None: all.
    """
    import networkx

    graph: Graph = networkx.DiGraph()
    chosen = topology.hosts if hosts is None else sorted(hosts)
    for host in chosen:
        for gpu in topology.gpus_of(host):
            _add_gpu(graph, topology, gpu)
        _add_memory(graph, topology, host)
    _add_network(graph, topology, chosen)
    _add_storage(graph, topology, chosen)
    return graph


def _node(graph: "Graph", name: str, kind: str, host: int = -1) -> str:
    graph.add_node(name, kind=kind, host=host)
    return name


def _edge(graph: "Graph", source: str, target: str, start: int = -1, number: int = 0) -> None:
    """Add an edge over link ``start + number``, or a free one."""
    link = start + number if start >= 0 else None
    graph.add_edge(source, target, link=link, hop=int(link is not None))


def _add_gpu(graph: "Graph", topology: Topology, gpu: int) -> None:
    starts, site = topology.starts, topology.gpus[gpu]
    name = _node(graph, f"gpu{gpu}", "gpu", site.host)
    shared = topology.spec.pcie_shared_by > 1
    port = _node(graph, f"pcie{site.switch}", "pcie", site.host)
    switch = _node(graph, f"switch{site.switch}", "switch", site.host)
    peers = _node(graph, f"host{site.host}", "host", site.host)
    _edge(graph, name, port, starts.pcie_out, gpu)
    _edge(graph, port, name, starts.pcie_in, gpu)
    _edge(graph, port, switch, starts.switch_out, site.switch)
    _edge(graph, switch, port, starts.switch_in, site.switch)
    between = switch if shared else port
    _edge(graph, between, peers)
    _edge(graph, peers, between)
    if site.nic >= 0:
        nic = _node(graph, f"nic{site.nic}", "nic", site.host)
        _edge(graph, switch, nic)
        _edge(graph, nic, switch)
    if site.domain >= 0:
        domain = _node(graph, f"nvlink{site.domain}", "nvlink", site.host)
        _edge(graph, name, domain, starts.nvlink_out, gpu)
        _edge(graph, domain, name, starts.nvlink_in, gpu)


def _add_memory(graph: "Graph", topology: Topology, host: int) -> None:
    starts, per_host = topology.starts, topology.spec.nics_per_host
    memory = _node(graph, f"dram{host}", "dram", host)
    into = _node(graph, f"memory{host} in", "memory", host)
    out = _node(graph, f"memory{host} out", "memory", host)
    _edge(graph, into, memory, starts.dram_in, host)
    _edge(graph, memory, out, starts.dram_out, host)
    nics = {f"nic{nic}" for nic in range(host * per_host, (host + 1) * per_host)}
    for end in (*nics, *{f"switch{topology.gpus[gpu].switch}" for gpu in topology.gpus_of(host)}):
        _edge(graph, out, end)
        _edge(graph, end, into)


def _add_network(graph: "Graph", topology: Topology, hosts: Collection[int]) -> None:
    starts, counts, per_host = topology.starts, topology.counts, topology.spec.nics_per_host
    nics = [nic for host in hosts for nic in range(host * per_host, (host + 1) * per_host)]
    for nic in nics:
        leaf = _node(graph, f"leaf{topology.leaf_of_nic(nic)}", "leaf")
        _edge(graph, f"nic{nic}", leaf, starts.nic_out, nic)
        _edge(graph, leaf, f"nic{nic}", starts.nic_in, nic)
    for leaf_number in sorted({topology.leaf_of_nic(nic) for nic in nics}):
        for number in range(counts.up_spines):
            spine, at = _node(graph, f"spine{number}", "spine"), leaf_number * counts.up_spines + number
            _edge(graph, f"leaf{leaf_number}", spine, starts.leaf_up, at)
            _edge(graph, spine, f"leaf{leaf_number}", starts.spine_down, at)


def _add_storage(graph: "Graph", topology: Topology, hosts: Collection[int]) -> None:
    spec, starts = topology.spec, topology.starts
    for host in hosts if topology.counts.ssds else ():
        for number in topology.gpus_of(host) if spec.ssd_per == "gpu" else (host,):
            _node(graph, f"ssd{number}", "ssd", host)
            _edge(graph, f"ssd{number}", f"memory{host} in", starts.ssd, number)
    if not spec.remote:
        return
    store = _node(graph, "remote", "remote")
    for host in hosts if spec.remote_per != "cluster" else ():
        _edge(graph, store, f"memory{host} in", starts.remote, host)
    if spec.remote_per == "cluster":
        door = _node(graph, "remote out", "remote")
        _edge(graph, store, door, starts.remote)
        for host in hosts:
            _edge(graph, door, f"memory{host} in")
