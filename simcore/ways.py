"""The way of a load: from the stops a controller names to the hops its bytes take, rank by rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError
from hwmodels.loading.loader import Loader
from hwmodels.loading.plan import Hop
from hwmodels.topology.link import REMOTE, Place, dram, gpu, gpu_ssd, ssd
from hwmodels.topology.topology import Topology
from serving.actions import Stop


@dataclass(frozen=True, slots=True)
class Way:
    """hops: of each rank. stop_of: hop -> the stop it ends at (hops that end between stops are not in it)."""

    hops: tuple[tuple[Hop, ...], ...]
    stop_of: dict[int, int]


def way(
    topology: Topology,
    stops: Sequence[Stop],
    gpus_of: Sequence[tuple[int, ...]],
    loader: Loader | None,
    spread: int = 0,
) -> Way:
    """Rank to same rank; from storage to a GPU through its host's memory, which takes a hop of its own.

    gpus_of: of each replica, rank by rank. loader: whose rate caps the first hop out of a store or a host's
    memory (None: the path's alone). Raises HardwareError where nothing leads.
    """
    ranks = {len(gpus_of[number]) for kind, number in stops if kind == "replica"} or {1}
    assert len(ranks) == 1, "replicas of different sizes share no load: their shards differ"
    legs = [_legs(topology, stops, gpus_of, rank) for rank in range(ranks.pop())]
    hops = tuple(tuple(_hop(topology, leg, spread) for leg in own) for own in legs)
    if loader is not None and stops[0][0] != "replica":
        hops = tuple((_capped(own[0], loader), *own[1:]) for own in hops)
    ends, stop_of = [end for _, _, end in legs[0]], {}
    for hop, end in enumerate(ends):
        if end is not None:
            stop_of[hop] = end
    return Way(hops, stop_of)


_Leg = tuple[Place, Place, int | None]
"""(from, to, the stop it ends at)."""


def _legs(
    topology: Topology, stops: Sequence[Stop], gpus_of: Sequence[tuple[int, ...]], rank: int
) -> list[_Leg]:
    legs: list[_Leg] = []
    here = stops[0]
    for number, there in enumerate(stops[1:], start=1):
        target = _place(topology, there, gpus_of, rank, there)
        source = _place(topology, here, gpus_of, rank, there)
        if here[0] in ("ssd", "remote") and target.kind == "gpu":
            between = dram(topology.host_of(target))
            legs += [(source, between, None), (between, target, number)]
        else:
            legs.append((source, target, number))
        here = there
    return legs


def _place(
    topology: Topology, stop: Stop, gpus_of: Sequence[tuple[int, ...]], rank: int, towards: Stop
) -> Place:
    """Where a stop's bytes of this rank lie. An SSD that belongs to a GPU is that of the GPU it leads to."""
    kind, number = stop
    if kind == "replica":
        return gpu(gpus_of[number][rank])
    if kind == "host":
        return dram(number)
    if kind == "remote":
        return REMOTE
    assert kind == "ssd", f"no stop is of the kind {kind!r}"
    if topology.spec.ssd_per != "gpu":
        return ssd(number)
    own = topology.gpus_of(number)
    if towards[0] != "replica":
        return gpu_ssd(own[rank % len(own)])
    target = gpus_of[towards[1]][rank]
    if target not in own:
        raise HardwareError(
            f"GPU {target} cannot load from the SSDs of host {number}: name the host it is in,"
            f" {topology.seat(target).host}"
        )
    return gpu_ssd(target)


def _hop(topology: Topology, leg: _Leg, spread: int) -> Hop:
    path = topology.path(leg[0], leg[1], spread)
    return Hop(path, latency_s=topology.latency_s(path))


def _capped(hop: Hop, loader: Loader) -> Hop:
    return replace(hop, cap_bytes_per_s=loader.rate_bytes_per_s)
