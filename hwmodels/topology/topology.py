"""A cluster with its links: who shares what, and over which links bytes go from one place to another."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwmodels.errors import HardwareError
from hwmodels.topology.layout import Counts, Starts, counts_of, laid_out
from hwmodels.topology.link import Link, Place, gpu_ssd, ssd
from hwmodels.topology.routes import route
from hwmodels.topology.spec import ClusterSpec

if TYPE_CHECKING:
    import networkx

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GpuSeat:
    """Where a GPU sits; all numbers count over the cluster, -1 where there is none.

    switch: the PCIe switch it shares with its neighbours (its own if it shares none). domain: of NVLink.
    up: the PCIe links from it towards its host, behind which host memory and NIC lie; down: those back.
    """

    gpu: int
    host: int
    switch: int
    nic: int
    leaf: int
    domain: int
    up: Path
    down: Path


@dataclass(frozen=True, slots=True)
class Topology:
    """The links of a cluster and the paths over them.

    A path is the tuple of the indices into ``links`` that bytes cross, computed from the places' numbers
    alone. Host memory is on a path only where the cluster gives its rate (``dram``).
    """

    spec: ClusterSpec
    links: tuple[Link, ...]
    gpus: tuple[GpuSeat, ...]
    counts: Counts
    starts: Starts
    link_latency_s: tuple[float, ...] = field(repr=False)

    @property
    def hosts(self) -> range:
        """The numbers of the hosts."""
        return range(self.spec.hosts)

    def path(self, source: Place, target: Place, spread: int = 0) -> Path:
        """The links from ``source`` to ``target``; () within one GPU, and within a host memory of no rate.

        GPU to GPU goes over NVLink inside a domain, over PCIe inside a host, else over both GPUs' NICs, and
        between leaves over the spine that a hash of (source, target, spread) names. From storage to a GPU is
        through the memory of the GPU's host. Raises HardwareError where nothing leads, or for a place that is
        not in the cluster.
        """
        return route(self, source, target, spread)

    def broadcast(self, source: int, targets: tuple[int, ...]) -> Path:
        """The tree of an NVLink broadcast: the source's way out once, the way in of every target.

        Raises HardwareError when there are no targets, one is there twice or is the source, or lies outside
        the source's domain.
        """
        group = self.scale_up_group(source)
        inside = self.spec.nvlink is not None and all(target in group for target in targets)
        if not targets or not inside or len({source, *targets}) != 1 + len(targets):
            domain = f"GPUs {group[0]} to {group[-1]}" if self.spec.nvlink else "the cluster has none"
            raise HardwareError(
                f"{self.spec.name}: no NVLink broadcast from GPU {source} to {targets}; write other GPUs of "
                f"its NVLink domain, each once ({domain})"
            )
        starts = self.starts
        return (starts.nvlink_out + source, *(starts.nvlink_in + target for target in targets))

    def latency_s(self, path: Path) -> float:
        """Seconds until the first byte is through: those of the path's links together.

        Of a broadcast's tree the way out and the slowest way in, which run side by side.
        """
        latencies = self.link_latency_s
        if len(path) > 2 and all(self.links[link].kind == "nvlink" for link in path):
            return latencies[path[0]] + max(latencies[link] for link in path[1:])
        return sum(latencies[link] for link in path)

    def rate_bytes_per_s(self, path: Path) -> float:
        """What one transfer alone gets; infinite over an empty path."""
        return min((self.links[link].rate_bytes_per_s for link in path), default=float("inf"))

    def seat(self, gpu: int) -> GpuSeat:
        """Where a GPU sits; HardwareError if there is none of that number."""
        if not 0 <= gpu < len(self.gpus):
            raise HardwareError(f"{self.spec.name}: there is no GPU {gpu}; write 0 to {len(self.gpus) - 1}")
        return self.gpus[gpu]

    def scale_up_group(self, gpu: int) -> range:
        """The GPUs that ``gpu`` reaches without a network, itself too: its NVLink domain, else its host's."""
        size = self.spec.domain_gpus or self.spec.gpus_per_host
        first = self.seat(gpu).gpu // size * size
        return range(first, min(first + size, self.spec.gpus))

    def gpus_of(self, host: int) -> range:
        """The GPUs of one host."""
        return range(host * self.spec.gpus_per_host, (host + 1) * self.spec.gpus_per_host)

    def leaf_of(self, gpu: int) -> int:
        """The leaf switch of the GPU's NIC; -1 without network."""
        return self.seat(gpu).leaf

    def nic_of(self, gpu: int) -> int:
        """The GPU's NIC; -1 without network."""
        return self.seat(gpu).nic

    def gpus_on_nic(self, nic: int) -> range:
        """The GPUs that share a NIC."""
        return range(nic * self.spec.gpus_per_nic, (nic + 1) * self.spec.gpus_per_nic)

    def gpus_on_switch(self, switch: int) -> range:
        """The GPUs that share a PCIe switch."""
        return range(switch * self.spec.pcie_shared_by, (switch + 1) * self.spec.pcie_shared_by)

    def leaf_of_nic(self, nic: int) -> int:
        """The leaf switch that a NIC is on."""
        return _leaf_of_nic(nic, self.spec, self.counts)

    def ssd_of(self, gpu: int) -> Place:
        """The SSD place that ``gpu`` loads from; HardwareError in a cluster without."""
        if self.spec.ssd is None:
            raise HardwareError(f"{self.spec.file}: there is no ssd; write one, or load from elsewhere")
        return gpu_ssd(self.seat(gpu).gpu) if self.spec.ssd_per == "gpu" else ssd(self.seat(gpu).host)

    def host_of(self, place: Place) -> int:
        """The host of a place; -1 for the remote store."""
        if place.kind in ("gpu", "gpu_ssd"):
            return place.number // self.spec.gpus_per_host
        return -1 if place.kind == "remote" else place.number

    def graph(self) -> "networkx.DiGraph[str]":
        """The same as a graph, see ``hwmodels.topology.graph``."""
        from hwmodels.topology.graph import graph_of

        return graph_of(self)


def build(spec: ClusterSpec) -> Topology:
    """The topology of a cluster, with every link and GPU written out."""
    counts = counts_of(spec)
    links, starts = laid_out(spec, counts)
    latency_s = {kind: found.latency_s for kind, found in spec.classes.items()}
    seats = tuple(_seat_of(gpu, spec, counts, starts) for gpu in range(spec.gpus))
    return Topology(spec, links, seats, counts, starts, tuple(latency_s[link.kind] for link in links))


def _seat_of(gpu: int, spec: ClusterSpec, counts: Counts, starts: Starts) -> GpuSeat:
    nic = gpu // spec.gpus_per_nic if spec.nic else -1
    switch = gpu // spec.pcie_shared_by
    up, down = (starts.pcie_out + gpu,), (starts.pcie_in + gpu,)
    return GpuSeat(
        gpu=gpu,
        host=gpu // spec.gpus_per_host,
        switch=switch,
        nic=nic,
        leaf=_leaf_of_nic(nic, spec, counts) if spec.nic else -1,
        domain=gpu // spec.domain_gpus if spec.nvlink else -1,
        up=(*up, starts.switch_out + switch) if counts.switches else up,
        down=(starts.switch_in + switch, *down) if counts.switches else down,
    )


def _leaf_of_nic(nic: int, spec: ClusterSpec, counts: Counts) -> int:
    host, local = divmod(nic, spec.nics_per_host)
    nic_set = host // counts.nic_set_hosts
    return nic_set * spec.nics_per_host + local if spec.leaves.rails else nic_set
