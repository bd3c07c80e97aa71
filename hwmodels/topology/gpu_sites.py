"""Positions of GPUs, NICs and hosts and which of them share a link, computed from their numbers."""

from dataclasses import dataclass

from hwmodels.errors import HardwareError
from hwmodels.topology.layout import ClusterCounts, Starts
from hwmodels.topology.link import Location, gpu_ssd, ssd
from hwmodels.topology.spec import ClusterSpec

Path = tuple[int, ...]
"""Indices of the links that bytes cross, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSite:
    """Position of a GPU; all numbers count over the cluster, -1 if there is none.

    switch: the PCIe switch it shares with its neighbours (its own if it shares none). domain: of NVLink. up:
    the PCIe links from it towards its host, which lead to host memory and NIC; down: those back.
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
class GpuSites:
    """The positions in a cluster, as the routes over its links need them."""

    spec: ClusterSpec
    gpus: tuple[GpuSite, ...]
    counts: ClusterCounts
    starts: Starts

    @property
    def hosts(self) -> range:
        """The numbers of the hosts."""
        return range(self.spec.hosts)

    def site(self, gpu: int) -> GpuSite:
        """Position of a GPU; HardwareError if there is no GPU of that number."""
        if not 0 <= gpu < len(self.gpus):
            raise HardwareError(f"{self.spec.name}: there is no GPU {gpu}; write 0 to {len(self.gpus) - 1}")
        return self.gpus[gpu]

    def scale_up_group(self, gpu: int) -> range:
        """The GPUs that ``gpu`` reaches without a network, itself too: its NVLink domain, else its host."""
        size = self.spec.domain_gpus or self.spec.gpus_per_host
        first = self.site(gpu).gpu // size * size
        return range(first, min(first + size, self.spec.gpus))

    def gpus_of(self, host: int) -> range:
        """The GPUs of one host."""
        return range(host * self.spec.gpus_per_host, (host + 1) * self.spec.gpus_per_host)

    def nic_of(self, gpu: int) -> int:
        """The GPU's NIC; -1 without a network."""
        return self.site(gpu).nic

    def gpus_on_nic(self, nic: int) -> range:
        """The GPUs that share a NIC."""
        return range(nic * self.spec.gpus_per_nic, (nic + 1) * self.spec.gpus_per_nic)

    def gpus_on_switch(self, switch: int) -> range:
        """The GPUs that share a PCIe switch."""
        return range(switch * self.spec.pcie_shared_by, (switch + 1) * self.spec.pcie_shared_by)

    def leaf_of_nic(self, nic: int) -> int:
        """The leaf switch of a NIC."""
        return _leaf_of_nic(nic, self.spec, self.counts)

    def ssd_of(self, gpu: int) -> Location:
        """The SSD location that ``gpu`` loads from; HardwareError if the cluster has no SSDs."""
        if self.spec.ssd is None:
            raise HardwareError(f"{self.spec.file}: the file has no ssd; write one, or load from elsewhere")
        return gpu_ssd(self.site(gpu).gpu) if self.spec.ssd_per == "gpu" else ssd(self.site(gpu).host)

    def host_of(self, place: Location) -> int:
        """The host of a place; -1 for the remote store."""
        if place.kind in ("gpu", "gpu_ssd"):
            return place.number // self.spec.gpus_per_host
        return -1 if place.kind == "remote" else place.number


def gpu_sites_of(spec: ClusterSpec, counts: ClusterCounts, starts: Starts) -> tuple[GpuSite, ...]:
    """Every GPU of the cluster written out."""
    return tuple(_site_of(gpu, spec, counts, starts) for gpu in range(spec.gpus))


def _site_of(gpu: int, spec: ClusterSpec, counts: ClusterCounts, starts: Starts) -> GpuSite:
    nic = gpu // spec.gpus_per_nic if spec.nic else -1
    switch = gpu // spec.pcie_shared_by
    up, down = (starts.pcie_out + gpu,), (starts.pcie_in + gpu,)
    return GpuSite(
        gpu=gpu,
        host=gpu // spec.gpus_per_host,
        switch=switch,
        nic=nic,
        leaf=_leaf_of_nic(nic, spec, counts) if spec.nic else -1,
        domain=gpu // spec.domain_gpus if spec.nvlink else -1,
        up=(*up, starts.switch_out + switch) if counts.switches else up,
        down=(starts.switch_in + switch, *down) if counts.switches else down,
    )


def _leaf_of_nic(nic: int, spec: ClusterSpec, counts: ClusterCounts) -> int:
    host, local = divmod(nic, spec.nics_per_host)
    nic_set = host // counts.nic_set_hosts
    return nic_set * spec.nics_per_host + local if spec.leaves.rails else nic_set
