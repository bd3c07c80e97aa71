"""Where GPUs are and how they meet the network, as far as placement and planning need it."""

from dataclasses import dataclass

from serving.protocols.planning import Port


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """``ports``: of each GPU; ``host_ports``: of each host's memory, one per NIC.

    ``scale_up_bytes_per_s``: of one GPU inside its domain, 0 where it has no neighbours. ``stores``: where
    parameters also are, nearest first: ``ssd`` (of each host), ``remote``.
    """

    gpus_per_host: int
    ports: tuple[Port, ...]
    host_ports: tuple[tuple[Port, ...], ...]
    scale_up_bytes_per_s: int
    stores: tuple[str, ...]

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.host_ports)

    def host_of(self, gpu: int) -> int:
        """The host of a GPU."""
        return gpu // self.gpus_per_host
