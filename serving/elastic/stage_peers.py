"""Loads of a stage's parameters from replicas that hold the same part, planned by a provisioner."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from serving.parameters.cluster_map import ClusterMap
from serving.parameters.loads import Loads
from serving.protocols.planning import Edge, Source
from serving.protocols.provision_answers import CheckedProvisioner
from serving.protocols.provisioning import GpuSlot, Provision, Provisioner
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica


class PeerSetup(NamedTuple):
    """The planning provisioner, and where GPUs and hosts meet the network."""

    provisioner: Provisioner
    cluster: ClusterMap


class StagePeers:
    """Plans loads between replicas. ``cluster``: without lost parts."""

    __slots__ = ("_is_held", "_loads", "_provisioner", "cluster")

    def __init__(self, setup: PeerSetup, loads: Loads, is_held: Callable[[Endpoint, Part], bool]) -> None:
        """``is_held``: whether an endpoint has all of a part."""
        self._provisioner = CheckedProvisioner(setup.provisioner)
        self.cluster = setup.cluster
        self._loads, self._is_held = loads, is_held

    def edges(
        self,
        part: Part,
        wanting: Sequence[Replica],
        peers: Collection[Replica],
        host_copies: Sequence[int],
    ) -> tuple[Edge, ...]:
        """Load edges to some of the replicas that want a part, from ``peers``: all that hold or load it.

        A replica with more layers than the part also holds it.
        """
        sending, taken = self._loads.sending(), {replica.gpus for replica in wanting}
        there = [peer for peer in peers if peer.gpus not in taken]  # only between different GPUs
        holders = [replica for replica in there if self._is_held(("replica", replica.id), part)]
        loading = [
            replica for replica in there if replica.part == part and self._loads.to(replica.id) is not None
        ]
        if not (holders or loading or host_copies):
            return ()
        slots = tuple([self._slot(replica, host_copies) for replica in wanting])
        hosts = tuple(
            [
                Source(("host", host), ports, ("host", host) in sending, sending.get(("host", host), 0))
                for host in host_copies
                if (ports := self.cluster.host_ports[host])
            ]
        )
        wanted = Provision(
            model=part.model,
            role="both",
            count=len(slots),
            slots=slots,
            holders=tuple([self._source(holder) for holder in holders]),
            host_copies=hosts,
            stores=self.cluster.stores,
            scale_up_bytes_per_s=self.cluster.scale_up_bytes_per_s,
            loading=tuple([self._source(replica) for replica in loading]),
        )
        return self._provisioner.provision(wanted).edges

    def _slot(self, replica: Replica, host_copies: Sequence[int]) -> GpuSlot:
        host = self.cluster.host_of(replica.gpus[0])
        ports = tuple([self.cluster.ports[gpu] for gpu in replica.gpus])
        lost = host in self.cluster.lost_ssds
        return GpuSlot(
            replica.id, replica.gpus, host=host, ports=ports, cached=host in host_copies, no_ssd=lost
        )

    def _source(self, replica: Replica) -> Source:
        endpoint: Endpoint = ("replica", replica.id)
        sending = self._loads.sending()
        ports = tuple([self.cluster.ports[gpu] for gpu in replica.gpus])
        return Source(endpoint, ports, endpoint in sending, sending.get(endpoint, 0))
