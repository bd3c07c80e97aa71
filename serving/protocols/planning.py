"""What a planner of parameter loads receives, and its plan: sources, targets, rates and order of transfers.

A planner plans transfers over the network only. Parameters that the target's own scale-up domain can supply
(a draining instance, weights still on the GPU, a GPU reached over NVLink) are used before it is called.
"""

from typing import Protocol

from serving.vocabulary.actions import Endpoint, Shard
from serving.vocabulary.fact import fact


@fact
class Port:
    """Where a GPU, or a host's memory (``gpu`` -1), connects to the network.

    gpu: its number. domain: number of the set of GPUs that it reaches without the network. leaf: number of
    the leaf switch. nic: number of the NIC in the cluster; ports with the same number share it.
    bandwidth_bytes_per_s: of the NIC in each direction. serves_prefill: a GPU behind the NIC serves prefill
    now, so the NIC sends KV.
    """

    gpu: int
    domain: int
    leaf: int
    nic: int
    bandwidth_bytes_per_s: int
    serves_prefill: bool = False


@fact
class Source:
    """A holder of all parameters.

    endpoint: ("replica", number), ("host", number), ("ssd", host) or ("remote", 0). ports: one per rank of a
    replica, one per NIC of a host. out_busy: one of its ports sends KV or parameters now. loads: loads in
    progress that take parameters from it.
    """

    endpoint: Endpoint
    ports: tuple[Port, ...]
    out_busy: bool = False
    loads: int = 0


@fact
class Target:
    """A replica that could be started: one port per rank, all in one scale-up domain."""

    replica: int
    ports: tuple[Port, ...]


@fact
class ScaleUp:
    """A request to start up to ``instances`` of the ``targets`` with parameters from ``sources``.

    Each instance has ``gpus_per_instance`` GPUs. The order of sources and targets has no meaning.
    """

    sources: tuple[Source, ...]
    targets: tuple[Target, ...]
    instances: int
    gpus_per_instance: int


@fact
class Edge:
    """Sources send parameters to targets, which exchange them inside their scale-up domain.

    sources, targets: endpoints. rate_bytes_per_s: rate of all shards together; 0 without shards. shards:
    which GPU sends which share to which GPU. Without them one source sends to one target, rank to same rank.
    """

    sources: tuple[Endpoint, ...]
    targets: tuple[Endpoint, ...]
    rate_bytes_per_s: int
    shards: tuple[Shard, ...]
    reason: str


@fact
class Plan:
    """Edges in order: each source of an edge has the parameters or is a target of an earlier edge."""

    edges: tuple[Edge, ...]
    reason: str

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas to start, in the order of the edges."""
        return tuple(number for edge in self.edges for _, number in edge.targets)


class Planner(Protocol):
    """Decides from which sources new instances get their parameters."""

    def plan(self, wanted: ScaleUp) -> Plan:
        """Plan at most ``wanted.instances`` targets, each in one edge; no edges if there is no source."""
