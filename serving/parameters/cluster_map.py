"""Where GPUs are and how they connect to the network, as placement and planning need it."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

from serving.protocols.planning import Port


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMap:
    """``ports``: one port for each GPU, their scale-up domains ascending.

    ``host_ports``: for each host, the ports of its memory, one per NIC.

    ``scale_up_bytes_per_s``: rate of one GPU inside its scale-up domain, 0 if the domain has no other GPU.
    ``stores``: other places of parameters, nearest first: ``ssd`` (the SSD of each host that is not in
    ``lost_ssds``), ``remote``.
    """

    gpus_per_host: int
    ports: tuple[Port, ...]
    host_ports: tuple[tuple[Port, ...], ...]
    scale_up_bytes_per_s: int
    stores: tuple[str, ...]
    lost_ssds: frozenset[int] = frozenset()

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.host_ports)

    def region_of(self, gpu: int, size: int) -> range:
        """The GPUs among which an instance of ``size`` GPUs with this one lies: its host, or its domain.

        An instance larger than a host takes whole hosts of one scale-up domain; its GPUs are consecutive.
        """
        count = self.gpus_per_host
        if size > count and size % count == 0:
            domain, first, last = self.ports[gpu].domain, gpu, gpu
            while first and self.ports[first - 1].domain == domain:
                first -= 1
            while last + 1 < len(self.ports) and self.ports[last + 1].domain == domain:
                last += 1
            return range(first, last + 1)
        host = self.host_of(gpu)
        return range(host * count, (host + 1) * count)

    def regions(self, size: int) -> list[range]:
        """All hosts, or all domains for an instance that is larger than a host."""
        found, gpu = list[range](), 0
        while gpu < len(self.ports):
            found.append(self.region_of(gpu, size))
            gpu = found[-1].stop
        return found

    def gpus_of_domain(self, domain: int) -> range:
        """The GPUs of a scale-up domain; empty if there is no such domain."""
        first = bisect_left(self.ports, domain, key=domain_of)
        return range(first, bisect_right(self.ports, domain, key=domain_of))

    def host_of(self, gpu: int) -> int:
        """The host of a GPU."""
        return gpu // self.gpus_per_host

    def without_ssd(self, host: int) -> "ClusterMap":
        """The map after the SSD of this host was lost."""
        return replace(self, lost_ssds=self.lost_ssds | {host})

    def without_nic(self, nic: int) -> "ClusterMap":
        """The map after a NIC was lost: its GPUs share the next NIC of their host, if it has one."""
        host_ports = tuple([tuple([one for one in ports if one.nic != nic]) for ports in self.host_ports])
        ports = tuple([self._moved(port, host_ports) if port.nic == nic else port for port in self.ports])
        return replace(self, ports=ports, host_ports=host_ports)

    def _moved(self, port: Port, host_ports: tuple[tuple[Port, ...], ...]) -> Port:
        left = host_ports[self.host_of(port.gpu)]
        if not left:
            return port  # the host is unreachable; its loss is reported next
        after = next((free_port for free_port in left if free_port.nic > port.nic), left[0])
        return replace(port, leaf=after.leaf, nic=after.nic)


def domain_of(port: Port) -> int:
    """The scale-up domain of a port's GPU."""
    return port.domain
