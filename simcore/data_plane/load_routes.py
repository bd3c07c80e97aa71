"""The route of a load: from the endpoints that a controller names to the hops that its bytes cross."""

from collections.abc import Mapping
from math import inf

from hwmodels.errors import HardwareError
from hwmodels.loading.loader import Loader
from hwmodels.loading.plan import Hop
from hwmodels.topology.link import REMOTE, Location, dram, gpu, gpu_ssd, ssd
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import Endpoint, Load
from simcore.data_plane.channels import LoadRoute, merged_stages
from simcore.data_plane.shards import channel_of, sharded_channels


def load_route(
    topology: Topology,
    load: Load,
    gpus_of: Mapping[int, tuple[int, ...]],
    loader: Loader | None,
    bundled: bool = True,
) -> LoadRoute:
    """The route: by shards as in ``sharded_channels``, else from each rank to the same rank.

    From storage to a GPU the route leads through the memory of the GPU's host, as a hop of its own. gpus_of:
    the GPUs of each replica, rank by rank. loader: its rate caps the hops out of a store or a host's memory
    (None: only the path's rate). bundled: False keeps every channel a flow of its own. Raises HardwareError
    if there is no path.
    """
    ranks = ranks_of(load, gpus_of)
    if load.shards:
        most = loader.rate_bytes_per_s if loader is not None else inf
        return merged_stages(*sharded_channels(topology, load, gpus_of, ranks, most), bundled)
    assert len(load.sources) == len(load.targets) == 1, (
        f"load {load.load} has {len(load.sources)} sources and {len(load.targets)} targets without shards: "
        "write shards, or one of each"
    )
    source, target = load.sources[0], load.targets[0]
    cap = loader.rate_bytes_per_s if loader is not None and source[0] != "replica" else inf
    first, then = list[Hop](), list[Hop]()
    for rank in range(ranks):
        start, end = _place(topology, source, gpus_of, rank, target), _end(target, gpus_of, rank)
        between = dram(topology.host_of(end)) if source[0] in ("ssd", "remote") else end
        share = 1 / ranks
        first.append(channel_of(topology, topology.path(start, between, load.load), cap, (), share))
        if between != end:
            path = topology.path(between, end, load.load)
            then.append(channel_of(topology, path, inf, (rank,), share))
    stages = [first, then] if then else [first]
    return merged_stages(stages, [[(len(stages) - 1, rank) for rank in range(ranks)]], bundled)


def ranks_of(load: Load, gpus_of: Mapping[int, tuple[int, ...]]) -> int:
    """GPUs of each replica in a load, 1 between stores and hosts."""
    endpoints = (*load.sources, *load.targets)
    sizes = {len(gpus_of[number]) for kind, number in endpoints if kind == "replica"} or {1}
    assert len(sizes) == 1, (
        f"load {load.load}: replicas of different sizes cannot share a load, as their shards differ"
    )
    return sizes.pop()


def _end(endpoint: Endpoint, gpus_of: Mapping[int, tuple[int, ...]], rank: int) -> Location:
    kind, number = endpoint
    assert kind in ("replica", "host"), (
        f"parameters are kept on a replica or in a host's memory, not in {kind}"
    )
    return gpu(gpus_of[number][rank]) if kind == "replica" else dram(number)


def _place(
    topology: Topology,
    endpoint: Endpoint,
    gpus_of: Mapping[int, tuple[int, ...]],
    rank: int,
    towards: Endpoint,
) -> Location:
    """The location of a source's bytes for this rank. A per-GPU SSD is that of the GPU it leads to.

    Every rank of a replica over several hosts reads from an SSD of its own host.
    """
    kind, number = endpoint
    if kind == "remote":
        return REMOTE
    if kind != "ssd":
        return _end(endpoint, gpus_of, rank)
    if towards[0] == "replica" and len({topology.site(one).host for one in gpus_of[towards[1]]}) > 1:
        return topology.ssd_of(gpus_of[towards[1]][rank])  # a rank's share, from its own host
    if topology.spec.ssd_per != "gpu":
        return ssd(number)
    own = topology.gpus_of(number)
    if towards[0] != "replica":
        return gpu_ssd(own[rank % len(own)])
    target = gpus_of[towards[1]][rank]
    if target not in own:
        raise HardwareError(
            f"GPU {target} cannot load from the SSDs of host {number}: name the host it is in,"
            f" {topology.site(target).host}"
        )
    return gpu_ssd(target)
