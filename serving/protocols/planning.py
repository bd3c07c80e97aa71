"""What a planner of parameter loads sees, and its plan: source and targets of each transfer, rate and order.

A planner decides over the network only. What the target's own scale-up domain can supply (a draining
instance, weights still on the GPU, a GPU reached over NVLink) is used before the planner is asked.
"""

from typing import Protocol

from serving.vocabulary.actions import Endpoint, Shard
from serving.vocabulary.fact import fact


@fact
class Port:
    """Where a GPU, or a host's memory (``gpu`` -1), connects to the network.

    domain: number of the set of GPUs that this GPU reaches without the network. nic: numbered over the whole
    cluster; ports with the same number share the NIC. bandwidth_bytes_per_s: of that NIC in each direction,
    above 0. serves_prefill: a GPU behind that NIC serves prefill now, so KV leaves through it.
    """

    gpu: int
    domain: int
    leaf: int
    nic: int
    bandwidth_bytes_per_s: int
    serves_prefill: bool = False


@fact
class Source:
    """A holder of all parameters: a running replica (one port per rank) or a host's copy (its ports).

    out_busy: KV or parameters leave through one of its ports now, from this source or another. loads: how
    many loads take parameters from it now.
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
    """Start up to ``instances`` of ``targets``, of ``gpus_per_instance`` GPUs each, from ``sources``.

    The order of sources and targets means nothing.
    """

    sources: tuple[Source, ...]
    targets: tuple[Target, ...]
    instances: int
    gpus_per_instance: int


@fact
class Edge:
    """One group of sources sends to targets, which then exchange shards inside their scale-up domain.

    rate_bytes_per_s: of all parameters together. The shards' shares sum to 1.
    """

    sources: tuple[Endpoint, ...]
    targets: tuple[Endpoint, ...]
    rate_bytes_per_s: int
    shards: tuple[Shard, ...]
    reason: str


@fact
class Plan:
    """Edges in serving order: each source of an edge has the parameters or is served earlier."""

    edges: tuple[Edge, ...]
    reason: str

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas to start, in the order in which they are served."""
        return tuple(number for edge in self.edges for _, number in edge.targets)


class Planner(Protocol):
    """Decides from which sources new instances get their parameters."""

    def plan(self, wanted: ScaleUp) -> Plan:
        """Plan at most ``wanted.instances`` targets, each served once; empty if there is no source."""
