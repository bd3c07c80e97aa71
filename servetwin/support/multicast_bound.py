"""How long the parameters of a model take to all new instances: a bound for every multicast, and the planner.

The bound is a cut condition (``hwmodels.topology.cuts.multicast_cut``): no target receives faster than the
maximum flow from the sources to it. Beside it stands what the multicast planner's plan takes in the simulated
data plane, on the same links and without other traffic.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hwmodels.catalogue import load_llm
from hwmodels.loading.startup import load_start_up
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import model_units
from hwmodels.topology.cuts import Cut, multicast_cut
from hwmodels.topology.link import gpu
from hwmodels.topology.topology import Topology
from policies.provisioning import NetworkProvisioner
from servetwin.assemble.elastic import cluster_map_of
from serving.protocols.planning import Edge, Port, Source
from serving.protocols.provisioning import GpuSlot, Provision
from serving.vocabulary.actions import Load
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.setup import DataPlaneSetup

MODEL: Final = "llama3_8b"  # the papers' usual example
MOST_GPUS: Final = 256  # of a larger cluster: so many on hosts spread over it, for which this takes a second
_LOADER: Final = "direct"
Instance = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multicast:
    """One scale-up. ``least_s``: no multicast is faster. ``planned_s``: the multicast planner's plan."""

    what: str
    copies: int
    least_s: float
    planned_s: float
    cut: Cut


def hosts_of_multicast(topology: Topology) -> list[int]:
    """Return all hosts, or as many as have ``MOST_GPUS``, spread evenly from the first to the last."""
    hosts, most = topology.spec.hosts, max(2, MOST_GPUS // topology.spec.gpus_per_host)
    count = min(hosts, most)
    return [number * (hosts - 1) // max(1, count - 1) for number in range(count)]


def multicasts(topology: Topology, model: str = MODEL, tp: int = 1) -> list[Multicast]:
    """Return scale-ups of a model's instances of ``tp`` GPUs between hosts.

    None for a single host, and for instances of several hosts, which load within their NVLink domain.
    """
    if topology.spec.hosts == 1 or topology.spec.nic is None or tp > topology.spec.gpus_per_host:
        return []
    llm = load_llm(model)
    return [
        _multicast(topology, llm, what, sources, targets)
        for what, sources, targets in _scale_ups(topology, tp)
    ]


def _scale_ups(topology: Topology, tp: int) -> Iterator[tuple[str, list[Instance], list[Instance]]]:
    """Yield (what, instances that have the parameters, instances that want them)."""
    hosts = hosts_of_multicast(topology)
    by_host = [_instances_of(topology, host, tp) for host in hosts]
    others = [instance for host in by_host[1:] for instance in host]
    half = len(hosts) // 2
    yield "one instance to one of another host", by_host[0][:1], others[:1]
    yield "one instance to all of other hosts", by_host[0][:1], others
    if len(by_host[0]) > 1:
        yield "one host's instances to all others", by_host[0], others
    if half > 1:
        first = [instance for host in by_host[:half] for instance in host]
        yield "half of the hosts' to the others", first, [one for host in by_host[half:] for one in host]


def _instances_of(topology: Topology, host: int, tp: int) -> list[Instance]:
    gpus = topology.gpus_of(host)
    return [tuple(range(first, first + tp)) for first in range(gpus.start, gpus.stop - tp + 1, tp)]


def _multicast(
    topology: Topology, llm: LlmShape, what: str, sources: Sequence[Instance], targets: Sequence[Instance]
) -> Multicast:
    size_bytes = sum(unit.size_bytes for unit in model_units(llm))
    senders = [gpu(number) for instance in sources for number in instance]
    kinds = _kinds_of(topology, sources, targets)
    relays = [list(map(gpu, instance)) for instance in targets]
    cut = multicast_cut(topology, senders, [list(map(gpu, one)) for one in kinds], relays)
    planned = planned_s(topology, llm, sources, targets)
    return Multicast(
        what=what, copies=len(targets), least_s=size_bytes / cut.rate_bytes_per_s, planned_s=planned, cut=cut
    )


def _kinds_of(topology: Topology, sources: Sequence[Instance], targets: Sequence[Instance]) -> list[Instance]:
    """Return one target of each kind: its place in its host, and whether a source shares leaf or domain.

    Every target's cut bounds the multicast, so leaving out some of a kind leaves a bound.
    """
    from_leaves = {topology.site(number).leaf for instance in sources for number in instance}
    from_domains = {topology.site(number).domain for instance in sources for number in instance} - {-1}
    kinds: dict[tuple[int, bool, bool], Instance] = {}
    for instance in targets:
        site = topology.site(instance[0])
        place = instance[0] - topology.gpus_of(site.host).start
        kinds.setdefault((place, site.leaf in from_leaves, site.domain in from_domains), instance)
    return list(kinds.values())


def planned_s(
    topology: Topology, llm: LlmShape, sources: Sequence[Instance], targets: Sequence[Instance]
) -> float:
    """Return how long the multicast planner's plan takes on these links, until the last target has all."""
    instances = [*sources, *targets]
    setup = DataPlaneSetup(
        topology=topology,
        shapes={llm.name: llm},
        model_of=[llm.name] * len(instances),
        gpus_of=instances,
        loader=_LOADER,
        start_up=load_start_up("none"),
    )
    plane = DataPlane(setup)
    for number, edge in enumerate(_plan(topology, sources, targets)):
        load = Load(
            load=number,
            model=llm.name,
            sources=edge.sources,
            targets=edge.targets,
            shards=edge.shards,
            every_layer=False,
            cold=False,
            reason=edge.reason,
        )
        plane.carry_out(0, load)
    last_ns = 0
    while (due_ns := plane.next_ns()) is not None:
        plane.collect(due_ns)
        last_ns = due_ns
    return last_ns / 1e9


def _plan(topology: Topology, sources: Sequence[Instance], targets: Sequence[Instance]) -> Sequence[Edge]:
    """The loads of system/provision=multicast: inside an NVLink domain first, then over the network."""
    cluster = cluster_map_of(topology)

    def of(instance: Instance) -> tuple[Port, ...]:
        return tuple(cluster.ports[number] for number in instance)

    wanted = Provision(
        model="",
        role="both",
        count=len(targets),
        slots=tuple(
            GpuSlot(place, instance, cluster.host_of(instance[0]), of(instance), cached=False)
            for place, instance in enumerate(targets, len(sources))
        ),
        holders=tuple(Source(("replica", place), of(instance)) for place, instance in enumerate(sources)),
        host_copies=(),
        stores=(),
        scale_up_bytes_per_s=cluster.scale_up_bytes_per_s,
        loading=(),
    )
    return NetworkProvisioner().provision(wanted).edges


def limits_of(topology: Topology, cut: Cut) -> Counter[str]:
    """Return how many links of each kind the cut has."""
    return Counter(topology.links[link].kind for link in cut.links)
