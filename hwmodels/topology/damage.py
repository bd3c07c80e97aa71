"""A cluster with lost links: bytes take another NIC or another spine, if there is one."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.topology.gpu_sites import GpuSites, Path
from hwmodels.topology.link import Location, dram
from hwmodels.topology.routes import route
from hwmodels.topology.topology import Topology

_ON_HOSTS: Final = ("gpu", "dram")


@dataclass(frozen=True, slots=True)
class Damaged(Topology):
    """The same links with the same numbers; no path uses the ``lost`` ones."""

    lost: frozenset[int] = frozenset()

    def path(self, source: Location, target: Location, spread: int = 0) -> Path:
        """The undamaged cluster's path if it still exists, else by a host's next NIC or a leaf's next spine.

        Raises HardwareError if no path is left.
        """
        usual = route(self, source, target, spread)
        if self.lost.isdisjoint(usual):
            return usual
        for way in _others(self, source, target, usual):
            if self.lost.isdisjoint(way):
                return way
        raise HardwareError(
            f"{self.spec.name}: no path is left from {source.kind} {source.number} to {target.kind} "
            f"{target.number} because links are lost"
        )


def damaged(topology: Topology, links: Collection[int]) -> Damaged:
    """The topology without these links, and without those it had lost before."""
    before = topology.lost if isinstance(topology, Damaged) else frozenset[int]()
    parts = {field.name: getattr(topology, field.name) for field in fields(Topology)}
    return Damaged(**parts, lost=before | frozenset(links))


def cut_off(topology: Topology, hosts: Collection[int]) -> list[int]:
    """The hosts among ``hosts`` to give up so that all remaining ones reach each other.

    Hosts with most reachable hosts stay; on a tie those with most NICs left, then the lowest numbers.
    """
    reached = {host: {other for other in hosts if _reaches(topology, host, other)} for host in hosts}
    stay: list[int] = []
    for host in sorted(hosts, key=lambda one: (-len(reached[one]), -_nics_left(topology, one), one)):
        if all(other in reached[host] and host in reached[other] for other in stay):
            stay.append(host)
    return sorted(set(hosts) - set(stay))


def _nics_left(topology: Topology, host: int) -> int:
    lost = topology.lost if isinstance(topology, Damaged) else frozenset[int]()
    per_host, starts = topology.spec.nics_per_host, topology.starts
    nics = range(host * per_host, (host + 1) * per_host)
    return sum(lost.isdisjoint((starts.nic_in + nic, starts.nic_out + nic)) for nic in nics)


def _reaches(topology: Topology, host: int, other: int) -> bool:
    try:
        topology.path(dram(host), dram(other))
    except HardwareError:
        return host == other
    return True


def _others(sites: GpuSites, source: Location, target: Location, usual: Path) -> Iterator[Path]:
    """Every route between two hosts over their NICs, the nearest to the usual one first."""
    here, there = sites.host_of(source), sites.host_of(target)
    if here == there or source.kind not in _ON_HOSTS or target.kind not in _ON_HOSTS:
        return
    starts, spines = sites.starts, sites.counts.up_spines
    first = sites.gpus[source.number].up if source.kind == "gpu" else _memory(starts.dram_out, here)
    last = sites.gpus[target.number].down if target.kind == "gpu" else _memory(starts.dram_in, there)
    out, to = usual[len(first)] - starts.nic_out, usual[-len(last) - 1] - starts.nic_in
    for pair, other in _pairs(sites, here, there, out, to):
        leaves = sites.leaf_of_nic(pair), sites.leaf_of_nic(other)
        nics = starts.nic_out + pair, starts.nic_in + other
        if leaves[0] == leaves[1]:
            yield (*first, *nics, *last)
            continue
        for spine in range(spines):
            up, down = (starts.leaf_up + leaves[0] * spines, starts.spine_down + leaves[1] * spines)
            yield (*first, nics[0], up + spine, down + spine, nics[1], *last)


def _pairs(sites: GpuSites, here: int, there: int, out: int, to: int) -> Iterator[tuple[int, int]]:
    """NICs at both ends, those with the fewest changes first."""
    per_host = sites.spec.nics_per_host
    ahead = [(nic, other) for nic in range(per_host) for other in range(per_host)]
    for one, other in sorted(ahead, key=lambda pair: (pair[0] + pair[1], pair)):
        yield (
            here * per_host + (out - here * per_host + one) % per_host,
            there * per_host + (to - there * per_host + other) % per_host,
        )


def _memory(start: int, host: int) -> Path:
    return (start + host,) if start >= 0 else ()
