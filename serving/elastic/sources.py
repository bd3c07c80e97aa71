"""Builds a provisioner's input: free slots, and the holders of parameters with their spare bandwidth."""

from collections.abc import Collection, Mapping, Sequence

from serving.elastic.instances import Instances
from serving.parameters.cluster_map import ClusterMap
from serving.parameters.loads import Loads
from serving.protocols.planning import Port, Source
from serving.protocols.provisioning import GpuSlot, Provision
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
    sending = loads.sending()
    prefilling = _prefilling(instances, cluster)
    slots = tuple(
        [
            GpuSlot(
                slot.id,
                slot.gpus,
                host=host,
                ports=_ports(slot.gpus, cluster, prefilling),
                cached=host in host_copies,
                no_ssd=any(cluster.host_of(gpu) in cluster.lost_ssds for gpu in slot.gpus),
            )
            for slot in instances.free_slots(model)
            for host in (cluster.host_of(slot.gpus[0]),)
        ]
    )
    holders, loading = list[Source](), list[Source]()
    for instance in instances.of(model):
        endpoint: Endpoint = ("replica", instance.replica.id)
        ports = _ports(instance.replica.gpus, cluster, prefilling)
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
        slots=slots,
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


def _prefilling(instances: Instances, cluster: ClusterMap) -> set[int]:
    """NICs behind which a GPU serves prefill."""
    return {
        cluster.ports[gpu].nic
        for instance in instances.live.values()
        if instance.role == "prefill" and instance.state == "serving"
        for gpu in instance.replica.gpus
    }


def _ports(gpus: Sequence[int], cluster: ClusterMap, prefilling: Collection[int]) -> tuple[Port, ...]:
    ports = [cluster.ports[gpu] for gpu in gpus]
    return tuple([_serving(port) if port.nic in prefilling else port for port in ports])


def _serving(port: Port) -> Port:
    """The port marked as serving prefill; ``replace`` would take five times as long as this construction."""
    return Port(
        gpu=port.gpu,
        domain=port.domain,
        leaf=port.leaf,
        nic=port.nic,
        bandwidth_bytes_per_s=port.bandwidth_bytes_per_s,
        serves_prefill=True,
    )
