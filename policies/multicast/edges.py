"""Build a plan's edges from senders and receivers: rates, shards, reasons, and NICs shared by two sides."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from policies.multicast.groups import Holder, sharded
from serving.protocols.planning import Edge, Source, Target


def relieved(edges: list[Edge], sources: Sequence[Source], served: Sequence[Target]) -> list[Edge]:
    """Lower the rates of edges if a source and a forwarding new replica send through one NIC.

    Each side's own shares were right; only together may they exceed the NIC. Host copies are ignored.
    """
    ports = {port.gpu: port for source in sources for port in source.ports if port.gpu >= 0}
    mixed = {port.nic for port in ports.values()} & {port.nic for replica in served for port in replica.ports}
    if not mixed:
        return edges
    ports |= {port.gpu: port for target in served for port in target.ports}
    wish: defaultdict[int, float] = defaultdict(float)
    for edge in edges:
        for shard in edge.shards:
            if shard.source_gpu >= 0:
                wish[ports[shard.source_gpu].nic] += shard.rate_bytes_per_s
    room = {
        port.gpu: port.bandwidth_bytes_per_s / wish[port.nic] for port in ports.values() if port.nic in wish
    }
    return [
        _slowed_edge(edge, min(room.get(shard.source_gpu, 1.0) for shard in edge.shards)) for edge in edges
    ]


def _slowed_edge(edge: Edge, factor: float) -> Edge:
    if factor > 1 - 1e-9:  # what adding up fractions of a byte may miss
        return edge
    rate = max(1, int(edge.rate_bytes_per_s * factor))
    shards = tuple([replace(shard, rate_bytes_per_s=shard.share * rate) for shard in edge.shards])
    reason = f"{edge.reason}, {in_gb(rate)} beside another sender on its NIC"
    return replace(edge, rate_bytes_per_s=rate, shards=shards, reason=reason)


def edge_of(givers: Sequence[Holder], takers: Sequence[Holder], why: str) -> Edge:
    """One edge from the givers to the takers at the slower side's rate; the reason ends with the rate."""
    rate, shards = sharded(givers, takers)
    sources = tuple([giver.endpoint for giver in givers])
    return Edge(sources, tuple([taker.endpoint for taker in takers]), rate, shards, f"{why}: {in_gb(rate)}")


def divided(holder: Holder, among: int) -> Holder:
    """The share of a sender that each of ``among`` receivers gets when it sends to all of them at once."""
    lanes = tuple((gpu, max(1, rate // among)) for gpu, rate in holder.lanes)
    return Holder(holder.endpoint, holder.leaf, lanes, sum(rate for _, rate in lanes))


def in_gb(bytes_per_s: int) -> str:
    """Format a rate for a reason."""
    return f"{bytes_per_s / 1e9:.3g} GB/s"
