"""How many paths that share no link lead from one GPU, host or leaf of a cluster to another.

All hosts of a cluster are alike, and so are its leaves: one pair of each kind of pair stands for all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hwmodels.topology.cuts import disjoint_paths, disjoint_paths_of_leaves, leaves_of, narrowest
from hwmodels.topology.gpu_sites import GpuSite
from hwmodels.topology.link import Location, gpu
from hwmodels.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """``what``: the pair and what both share. ``rate_bytes_per_s``: of all paths together, 0 for leaves."""

    what: str
    paths: int
    rate_bytes_per_s: float
    one_path_bytes_per_s: float


def path_diversity(topology: Topology) -> list[Diversity]:
    """Return every kind of pair of GPUs, of hosts and of leaves, in this order."""
    found = [_of_places(topology, *pair) for pair in _pairs_of_gpus(topology)]
    found += [_of_places(topology, *pair) for pair in _pairs_of_hosts(topology)]
    if topology.counts.up_spines:
        paths = disjoint_paths_of_leaves(topology, 0, 1)
        link = topology.links[topology.starts.leaf_up].rate_bytes_per_s
        found.append(
            Diversity(
                what="leaf 0 to leaf 1", paths=paths, rate_bytes_per_s=paths * link, one_path_bytes_per_s=link
            )
        )
    return found


def least_diverse(found: list[Diversity]) -> Diversity | None:
    """Return the pair of GPUs with the fewest paths, then the least rate; None without a pair."""
    of_gpus = [one for one in found if one.what.startswith("GPU")]
    return min(of_gpus, key=lambda one: (one.paths, one.rate_bytes_per_s), default=None)


def _of_places(topology: Topology, what: str, sources: list[Location], targets: list[Location]) -> Diversity:
    return Diversity(
        what=what,
        paths=disjoint_paths(topology, sources, targets),
        rate_bytes_per_s=narrowest(topology, sources, targets).rate_bytes_per_s,
        one_path_bytes_per_s=topology.rate_bytes_per_s(topology.path(sources[0], targets[0])),
    )


def _pairs_of_gpus(topology: Topology) -> Iterator[tuple[str, list[Location], list[Location]]]:
    kinds: dict[str, tuple[int, int]] = {}
    for first in topology.gpus_of(0):
        for host in _hosts_apart(topology):
            for second in topology.gpus_of(host):
                if first != second:
                    shared = _shared(topology, topology.site(first), topology.site(second))
                    kinds.setdefault(shared, (first, second))
    for shared, (first, second) in kinds.items():
        yield f"GPU {first} to GPU {second}, {shared}", [gpu(first)], [gpu(second)]


def _shared(topology: Topology, first: GpuSite, second: GpuSite) -> str:
    """Return what two GPUs share, which decides the paths between them."""
    if 0 <= first.domain == second.domain:
        hosts = "" if first.host == second.host else " of hosts"
        return f"one NVLink domain{hosts}{_same_leaf(first, second) if hosts else ''}"
    if first.host == second.host:
        one_switch = topology.spec.pcie_shared_by > 1 and first.switch == second.switch
        return "one PCIe switch" if one_switch else "one host"
    return _same_leaf(first, second).removeprefix(", ")


def _same_leaf(first: GpuSite, second: GpuSite) -> str:
    return ", one leaf" if first.leaf == second.leaf else ", two leaves"


def _hosts_apart(topology: Topology) -> list[int]:
    """Return host 0 and one host of each kind of other: its leaf or another, its NVLink domain or another."""
    kinds: dict[tuple[bool, bool, bool], int] = {}
    first, leaves = topology.gpus[0], leaves_of(topology, 0)
    for host in topology.hosts:
        site = topology.gpus[topology.gpus_of(host).start]
        same_domain = 0 <= first.domain == site.domain
        kinds.setdefault((host == 0, leaves_of(topology, host) == leaves, same_domain), host)
    return sorted(kinds.values())


def _pairs_of_hosts(topology: Topology) -> Iterator[tuple[str, list[Location], list[Location]]]:
    for host in _hosts_apart(topology)[1:]:
        first, second = (list(map(gpu, topology.gpus_of(one))) for one in (0, host))
        shared = "same leaves" if leaves_of(topology, 0) == leaves_of(topology, host) else "other leaves"
        yield f"host 0 to host {host}, {shared}", first, second
