"""The channels of a sharded load: which source sends which part, and how the targets exchange parts."""

from collections.abc import Mapping, Sequence

from hwmodels.loading.plan import Hop
from hwmodels.topology.link import Location, dram, gpu
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import Load, Shard
from simcore.data_plane.channels import Stage

_NO_SHARE = 1e-9  # tolerance for rounding when shares are added up
ChannelEnds = Sequence[Sequence[tuple[int, int]]]


def sharded_channels(
    topology: Topology, load: Load, gpus_of: Mapping[int, tuple[int, ...]], ranks: int, loader_rate: float
) -> tuple[list[Stage], ChannelEnds]:
    """(stages of channels, per target the (stage, channel) that end at it).

    One channel per shard. With several targets, their GPUs of the same rank then gather around a ring inside
    their scale-up domain: each GPU receives what it lacks. They gather a chunk when all its parts have
    arrived, in parallel with the next one. If one GPU sends a part to each of them inside its NVLink domain,
    it instead sends everything once, and the switch copies. loader_rate: the highest rate out of a host's
    memory.
    """
    channels, gathers = list[Hop](), list[Hop]()
    ends: list[list[tuple[int, int]]] = [[] for _ in load.targets]
    for rank, shards in enumerate(_by_rank(load, gpus_of, ranks)):
        group = [gpus_of[number][rank] for _, number in load.targets]
        if _is_broadcast(topology, shards, group):
            for own in ends:
                own.append((0, len(channels)))
            channels.append(_tree(topology, shards, group))
            continue
        parts, first = [0.0] * len(group), len(channels)
        for shard, place in zip(shards, _places(load, shards), strict=True):
            target = group.index(shard.target_gpu)
            parts[target] += shard.share
            ends[target].append((0, len(channels)))
            cap = shard.rate_bytes_per_s if place.kind == "gpu" else min(shard.rate_bytes_per_s, loader_rate)
            path = topology.path(place, gpu(shard.target_gpu), load.load)
            channels.append(channel_of(topology, path, cap, (), shard.share))
        after = tuple(range(first, len(channels)))
        for target, source_gpu, lacking in _ring(topology, load, group, parts):
            ends[target].append((1, len(gathers)))
            path = topology.path(gpu(source_gpu), gpu(group[target]), load.load)
            gathers.append(channel_of(topology, path, float("inf"), after, lacking))
    return ([channels, gathers] if gathers else [channels]), ends


def _by_rank(load: Load, gpus_of: Mapping[int, tuple[int, ...]], ranks: int) -> list[list[Shard]]:
    """The shards of each rank; together they bring the rank all it needs."""
    into = {one: rank for _, number in load.targets for rank, one in enumerate(gpus_of[number])}
    out = {
        one: rank
        for kind, number in load.sources
        if kind == "replica"
        for rank, one in enumerate(gpus_of[number])
    }
    found: list[list[Shard]] = [[] for _ in range(ranks)]
    for shard in load.shards:
        source, target = shard.source_gpu, shard.target_gpu
        assert target in into, f"load {load.load}: GPU {target} belongs to none of its targets"
        assert source < 0 or out.get(source) == into[target], (
            f"load {load.load}: GPU {source} cannot send to GPU {target}: write one of that rank of a source"
        )
        found[into[target]].append(shard)
    for rank, own in enumerate(found):
        share = sum([shard.share for shard in own])
        assert abs(share - 1 / ranks) < _NO_SHARE, (
            f"load {load.load}: the shards of rank {rank} are {share} of all parameters, not {1 / ranks}"
        )
    return found


def _places(load: Load, shards: Sequence[Shard]) -> list[Location]:
    """The source of each shard. Shards from several hosts' memory are assigned to the hosts in equal parts.

    (A shard does not name its host; the planner orders them like the sources.)
    """
    hosts = [number for kind, number in load.sources if kind == "host"]
    total = sum([shard.share for shard in shards if shard.source_gpu < 0])
    assert hosts or not total, f"load {load.load} has shards from a host's memory and no such source"
    found, before = [], 0.0
    for shard in shards:
        if shard.source_gpu >= 0:
            found.append(gpu(shard.source_gpu))
            continue
        middle = (before + shard.share / 2) / total
        found.append(dram(hosts[min(int(middle * len(hosts)), len(hosts) - 1)]))
        before += shard.share
    return found


def _is_broadcast(topology: Topology, shards: Sequence[Shard], group: Sequence[int]) -> bool:
    sources = {shard.source_gpu for shard in shards}
    if topology.spec.nvlink is None or len(group) < 2 or len(sources) > 1 or min(sources) < 0:
        return False
    reached = topology.scale_up_group(min(sources))
    return {shard.target_gpu for shard in shards} == set(group) and all(one in reached for one in group)


def _tree(topology: Topology, shards: Sequence[Shard], group: Sequence[int]) -> Hop:
    """A rank's parameters, sent once by the source and copied into every target."""
    path = topology.broadcast(shards[0].source_gpu, tuple(group))
    cap = sum([shard.rate_bytes_per_s for shard in shards])
    return channel_of(topology, path, cap, (), sum([shard.share for shard in shards]))


def _ring(
    topology: Topology, load: Load, group: Sequence[int], parts: Sequence[float]
) -> list[tuple[int, int, float]]:
    """(target, from GPU, share received), each target from the previous one, where something is missing.

    In the order of their numbers, so that neighbours on a PCIe switch are neighbours in the ring.
    """
    reached = topology.scale_up_group(group[0])
    assert all(one in reached for one in group), (
        f"load {load.load}: GPUs {group} are not in one scale-up domain, so they cannot exchange shards"
    )
    order = sorted(range(len(group)), key=lambda target: group[target])
    whole = sum(parts)
    return [
        (target, group[before], whole - parts[target])
        for before, target in zip((order[-1], *order[:-1]), order)
        if whole - parts[target] > _NO_SHARE
    ]


def channel_of(
    topology: Topology, path: tuple[int, ...], cap: float, after: tuple[int, ...], share: float
) -> Hop:
    """A channel over these links from the ends of the channels ``after``, at most as fast as ``cap``."""
    return Hop(path, cap_bytes_per_s=cap, latency_s=topology.latency_s(path), after=after, share=share)
