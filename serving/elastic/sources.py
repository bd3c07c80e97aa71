"""Builds a provisioner's input: free slots, and the holders of parameters with their spare bandwidth."""

from collections.abc import Collection, Mapping, Sequence

from serving.elastic.instances import Instances
from serving.elastic.offered_slots import OfferedSlots, ports_of
from serving.parameters.cluster_map import ClusterMap
from serving.parameters.loads import Loads
from serving.protocols.planning import Port, Source
from serving.protocols.provisioning import Provision
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.replica import Role


def provision_for(
    model: str,
    role: Role,
    count: int,
    *,
    instances: Instances,
    cluster: ClusterMap,
    host_copies: Sequence[int],
    loads: Loads,
    kv_senders: Collection[int],
) -> Provision:
    """The request for ``count`` instances.

    host_copies: hosts whose memory has the parameters. A loading replica can forward what it receives (chains
    grow at their tails). An endpoint that is sending parameters is busy, and so is one of ``kv_senders``,
    which send KV now.
    """
    sending, nics = loads.sending(), instances.prefilling_nics
    holders, loading = list[Source](), list[Source]()
    for instance in instances.of(model):
        endpoint: Endpoint = ("replica", instance.replica.id)
        ports = ports_of(instance.replica.gpus, cluster, nics)
        if loads.to(instance.replica.id) is not None:
            loading.append(_source(endpoint, ports, sending))
        elif instance.state != "loading":
            holders.append(_source(endpoint, ports, sending, instance.replica.id in kv_senders))
    hosts = []
    for host in host_copies:
        if cluster.host_ports[host]:
            endpoint = ("host", host)
            hosts.append(_source(endpoint, cluster.host_ports[host], sending))
    scale_up = cluster.scale_up_bytes_per_s
    return Provision(
        model=model,
        role=role,
        count=count,
        slots=OfferedSlots(instances.free_slots(model), cluster, host_copies, nics),
        holders=tuple(holders),
        host_copies=tuple(hosts),
        stores=cluster.stores,
        scale_up_bytes_per_s=scale_up,
        loading=tuple(loading),
    )


def _source(
    endpoint: Endpoint, ports: tuple[Port, ...], sending: Mapping[Endpoint, int], busy: bool = False
) -> Source:
    return Source(endpoint, ports, busy or endpoint in sending, sending.get(endpoint, 0))
