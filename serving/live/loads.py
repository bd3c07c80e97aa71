"""What live scaling reads from a plan of loads: load time of each instance, and whether it feeds others."""

from collections.abc import Sequence

from serving.protocols.live import LiveTarget
from serving.protocols.planning import Edge
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.units import NS_PER_S


def live_targets(edges: Sequence[Edge], size_bytes: int) -> list[LiveTarget]:
    """The replicas that the edges start, in their order. size_bytes: size of all parameters.

    A chain is as slow as its slowest edge; a load with an unknown rate has no estimate.
    """
    feeding = {source for edge in edges for source in edge.sources}
    load_ns: dict[Endpoint, int | None] = {}
    loads = []
    for edge in edges:
        own_ns = _alone_ns(edge, size_bytes)
        before = [load_ns[source] for source in edge.sources if source in load_ns]
        known = [one_ns for one_ns in (own_ns, *before) if one_ns is not None]
        slowest_ns = max(known) if len(known) == 1 + len(before) else None
        for target in edge.targets:
            load_ns[target] = slowest_ns
            loads.append(LiveTarget(target[1], slowest_ns, target not in feeding))
    return loads


def _alone_ns(edge: Edge, size_bytes: int) -> int | None:
    """Load time of the edge by itself; None if its rate is not known."""
    if not edge.shards or any(shard.rate_bytes_per_s <= 0 for shard in edge.shards):
        return None
    slowest_s = max(shard.share * size_bytes / shard.rate_bytes_per_s for shard in edge.shards)
    return round(slowest_s * NS_PER_S)
