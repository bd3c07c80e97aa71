"""Plans of parameters played on the fabric alone: no requests, no controller, bytes over shared links."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hwmodels.catalogue import load_llm
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import KV, FlowSpec
from hwmodels.loading.chain import Chain
from hwmodels.loading.group_chain import Group, group_chain
from hwmodels.loading.plan import Hop
from hwmodels.loading.ranks import Ranks
from hwmodels.models.load_units import Unit, model_units, shard
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.link import Location, dram, gpu
from hwmodels.topology.spec import ClusterSpec, at_efficiency
from hwmodels.topology.topology import Topology, build

GB = 10**9
FIG_21_BYTES = 48 * GB  # 24 billion parameters of 2 bytes, as the paper counts; the catalogue's has 47.1 GB


def play(
    topology: Topology,
    plans: Sequence[Ranks | Chain],
    others: Sequence[FlowSpec] = (),
    fabric: Fabric | None = None,
) -> list[dict[int, float]]:
    """Return, for each plan, target (``Arrival.hop``) -> seconds until it has received everything.

    All plans begin at 0, and so do ``others``, flows whose end is not awaited. fabric: the fabric that
    carries the flows; a caller passes one to read it afterwards. If it is None, a new one is made.
    """
    fabric = fabric or fabric_of(topology)
    runs = [Ranks([plan]) if isinstance(plan, Chain) else plan for plan in plans]
    arrived_s: list[dict[int, float]] = [{} for _ in runs]
    owner = {}
    for other in others:
        fabric.start(other, 0.0)
    for number, run in enumerate(runs):
        for send in run.begin():
            owner[fabric.start(send.flow, 0.0)] = (number, send)
    while not all(run.done for run in runs):
        at_s = fabric.next_completion_s()
        for done in fabric.advance(at_s):
            number, send = owner.pop(done.flow)
            step = runs[number].finished(send.rank, send.hop, send.chunk)
            for follower in step.sends:
                owner[fabric.start(follower.flow, at_s)] = (number, follower)
            arrived_s[number].update({arrival.hop: at_s for arrival in step.arrivals})
    fabric.check()
    return arrived_s


def fabric_of(topology: Topology) -> Fabric:
    """Links that carry what their efficiency leaves of them."""
    return Fabric([link.rate_bytes_per_s for link in topology.links])


def hop(topology: Topology, source: Location, target: Location) -> Hop:
    """The path between two places, with the latency of its links."""
    path = topology.path(source, target)
    return Hop(path, latency_s=topology.latency_s(path))


def exact(spec: ClusterSpec) -> Topology:
    """The cluster with links that reach their datasheet rates at once: what closed forms are about."""
    topology = build(at_efficiency(1.0, spec))
    return replace(topology, link_latency_s=(0.0,) * len(topology.links))


def units_of(model: str, total_bytes: int) -> list[Unit]:
    """The units of a model, each scaled so that together they have ``total_bytes``."""
    shape = load_llm(model)
    units = [
        replace(unit, size_bytes=unit.size_bytes * total_bytes // shape.weight_bytes)
        for unit in model_units(shape)
    ]
    rest = total_bytes - sum(unit.size_bytes for unit in units)
    return [*units[:-1], replace(units[-1], size_bytes=units[-1].size_bytes + rest)]


# BlitzScale's Figure 21: six instances of two GPUs each on cluster A, two chains of three.


def four_nics(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """The chains' instances side by side: each GPU gets a quarter over its NIC, and swaps it over NVLink.

    GPUs 0, 1 of a host are the instance of one chain, 2 and 3 that of the other. Quarters 0 and 2 are rank
    0's, so that GPUs 0 and 2 swap, as 1 and 3 do. The sources are the two instances of host 0.
    """
    groups = [
        Group(
            tuple(
                hop(topology, gpu(8 * host - 8 + channel), gpu(8 * host + channel)) for channel in range(4)
            ),
            tuple(
                hop(topology, gpu(8 * host + channel), gpu(8 * host + (channel + 2) % 4))
                for channel in range(4)
            ),
        )
        for host in (1, 2, 3)
    ]
    return [group_chain(units_of("mistral_24b", FIG_21_BYTES), groups, chunk_bytes=chunk_bytes)]


def two_nics(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """Each chain alone: each rank gets its half over the NIC of its GPU."""
    return [
        _two_ranks(
            [
                [
                    hop(topology, gpu(8 * host - 8 + first + rank), gpu(8 * host + first + rank))
                    for host in (1, 2, 3)
                ]
                for rank in range(2)
            ],
            chunk_bytes,
        )
        for first in (0, 2)
    ]


def all_cache(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """Each of the six instances from a copy in its own host's memory."""
    return [
        _two_ranks(
            [[hop(topology, dram(host), gpu(8 * host + first + rank))] for rank in range(2)], chunk_bytes
        )
        for host in (1, 2, 3)
        for first in (0, 2)
    ]


def _two_ranks(hops: list[list[Hop]], chunk_bytes: int | None) -> Ranks:
    units = units_of("mistral_24b", FIG_21_BYTES)
    return Ranks(
        [
            Chain(shard(units, 2, rank), own, chunk_bytes=chunk_bytes, rank=rank)
            for rank, own in enumerate(hops)
        ]
    )


# Parameters leave a GPU whose outgoing (or incoming) link carries KV.

SOURCE, DECODE, TARGET = 0, 8, 9  # prefill and decode instance of one GPU each; the one to be loaded


def slowdown(share: float, *, priority: int = 0, pruned: bool = False) -> float:
    """Return the time of a load of Llama3-8B beside steady KV of ``share`` of a NIC, over its time alone.

    KV goes from the prefill to the decode instance. The load leaves the prefill instance too, or (pruned) the
    decode instance, into which the KV flows. priority: the priority of KV; parameters have priority 0.
    """
    topology = exact(load_cluster("blitz_b"))
    hops = [hop(topology, gpu(DECODE), gpu(1)) if pruned else hop(topology, gpu(SOURCE), gpu(TARGET))]
    units = model_units(load_llm("llama3_8b"))
    nic_rate = topology.rate_bytes_per_s(hops[0].links)
    path = topology.path(gpu(SOURCE), gpu(DECODE))
    endless_bytes = 1e6 * nic_rate
    kv = FlowSpec(
        path, endless_bytes, kind=KV, cap_bytes_per_s=share * nic_rate or math.inf, priority=priority
    )
    ((loaded_s,),) = [plan.values() for plan in play(topology, [Chain(units, hops)], [kv] if share else [])]
    return loaded_s / (sum(unit.size_bytes for unit in units) / nic_rate)


def nic_bytes_per_s(cluster: str) -> float:
    """The datasheet rate of one NIC of a cluster."""
    topology = exact(load_cluster(cluster))
    return next(link.rate_bytes_per_s for link in topology.links if link.kind == "nic")


# Version 1 of BlitzScale, Figure 18: a Llama2-7B instance becomes 16 on two hosts of cluster A.


def chain_7b(topology: Topology) -> list[Ranks | Chain]:
    """GPU 0 has the parameters: a chain through its host, and one over its NIC through the next host."""
    units = model_units(load_llm("llama2_7b"))
    return [
        Chain(units, [hop(topology, gpu(first), gpu(second)) for first, second in pairwise(seats)])
        for seats in (tuple(range(8)), (0, *range(8, 16)))
    ]


def ssd_7b(topology: Topology) -> list[Ranks | Chain]:
    """Host 0's memory has them: its GPUs load over PCIe, those of host 1 from its SSD."""
    units = model_units(load_llm("llama2_7b"))
    hosts = [Chain(units, [hop(topology, dram(0), gpu(seat))]) for seat in range(8)]
    return [
        *hosts,
        *(Chain(units, [hop(topology, topology.ssd_of(seat), gpu(seat))]) for seat in range(8, 16)),
    ]
