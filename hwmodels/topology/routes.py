"""The links between two places, computed in constant time."""

from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.topology.gpu_sites import GpuSites, Path
from hwmodels.topology.link import Location

PLACE_NUMBERS: Final = {"gpu": 1, "dram": 2, "ssd": 3, "gpu_ssd": 4, "remote": 5}
_64_BITS: Final = (1 << 64) - 1


def route(sites: GpuSites, source: Location, target: Location, spread: int) -> Path:
    """See ``Topology.path``."""
    if source.kind == "gpu" and target.kind == "gpu":
        return _between_gpus(sites, source, target, spread)
    _require(sites, source)
    _require(sites, target)
    if source == target:
        return _in_place(sites, source)
    if target.kind not in ("gpu", "dram"):
        raise _nothing_leads(sites, source, target)
    if source.kind in ("gpu", "dram"):
        return _with_memory(sites, source, target, spread)
    return _from_storage(sites, source, target)


def _between_gpus(sites: GpuSites, source: Location, target: Location, spread: int) -> Path:
    out, to = sites.site(source.number), sites.site(target.number)
    starts = sites.starts
    if out is to:
        return ()
    if out.domain >= 0 and out.domain == to.domain:
        return (starts.nvlink_out + out.gpu, starts.nvlink_in + to.gpu)
    if out.host != to.host:
        between = (
            ()
            if out.leaf == to.leaf
            else _over_spine(
                sites, from_leaf=out.leaf, to_leaf=to.leaf, source=source, target=target, spread=spread
            )
        )
        return (*out.up, starts.nic_out + out.nic, *between, starts.nic_in + to.nic, *to.down)
    if sites.spec.pcie_shared_by > 1 and out.switch != to.switch:
        return out.up + to.down
    return (starts.pcie_out + out.gpu, starts.pcie_in + to.gpu)


def _over_spine(
    sites: GpuSites, *, from_leaf: int, to_leaf: int, source: Location, target: Location, spread: int
) -> Path:
    """Up to the spine selected by the hash, and down from it."""
    starts, spines = sites.starts, sites.counts.up_spines
    spine = _hash(source, target, spread) % spines if spines > 1 else 0
    return (starts.leaf_up + from_leaf * spines + spine, starts.spine_down + to_leaf * spines + spine)


def _with_memory(sites: GpuSites, source: Location, target: Location, spread: int) -> Path:
    """Between a host's memory and a GPU or another host's memory."""
    starts, here, there = sites.starts, sites.host_of(source), sites.host_of(target)
    first = sites.gpus[source.number].up if source.kind == "gpu" else _if(starts.dram_out, here)
    last = sites.gpus[target.number].down if target.kind == "gpu" else _if(starts.dram_in, there)
    if here == there:
        return first + last
    out, to = _nics(sites, source, target, spread)
    from_leaf, to_leaf = sites.leaf_of_nic(out), sites.leaf_of_nic(to)
    between: Path = ()
    if from_leaf != to_leaf:
        between = _over_spine(
            sites, from_leaf=from_leaf, to_leaf=to_leaf, source=source, target=target, spread=spread
        )
    return (*first, starts.nic_out + out, *between, starts.nic_in + to, *last)


def _nics(sites: GpuSites, source: Location, target: Location, spread: int) -> tuple[int, int]:
    """The NICs at both ends: a GPU's own; for a host memory the one with the same number in its host.

    Between two host memories the hash selects the number, so several flows use all NICs.
    """
    per_host = sites.spec.nics_per_host
    if source.kind == "gpu":
        out = sites.gpus[source.number].nic
        return out, target.number * per_host + out % per_host
    if target.kind == "gpu":
        to = sites.gpus[target.number].nic
        return source.number * per_host + to % per_host, to
    pick = _hash(source, target, ~spread) % per_host
    return source.number * per_host + pick, target.number * per_host + pick


def _from_storage(sites: GpuSites, source: Location, target: Location) -> Path:
    """Into the memory of the target's host and, for a GPU, out of it again."""
    starts, host = sites.starts, sites.host_of(target)
    if source.kind == "remote":
        first = (starts.remote + (host if sites.spec.remote_per != "cluster" else 0),)
    elif sites.host_of(source) == host:
        first = (starts.ssd + source.number,)
    else:
        raise _nothing_leads(sites, source, target)
    stored = first + _if(starts.dram_in, host)
    if target.kind == "dram":
        return stored
    return stored + _if(starts.dram_out, host) + sites.gpus[target.number].down


def _in_place(sites: GpuSites, place: Location) -> Path:
    """A copy within host memory reads and writes it."""
    starts = sites.starts
    if place.kind != "dram" or starts.dram_in < 0:
        return ()
    return (starts.dram_out + place.number, starts.dram_in + place.number)


def _require(sites: GpuSites, place: Location) -> None:
    """Refuse a place that the cluster does not have."""
    spec, ssds = sites.spec, sites.counts.ssds
    count = {
        "gpu": spec.gpus,
        "dram": spec.hosts,
        "ssd": ssds if spec.ssd_per == "host" else 0,
        "gpu_ssd": ssds if spec.ssd_per == "gpu" else 0,
        "remote": min(1, sites.counts.remotes),
    }.get(place.kind)
    if count is None:
        raise HardwareError(f"the place {place.kind!r} is unknown; write one of {', '.join(PLACE_NUMBERS)}")
    if not 0 <= place.number < count:
        there = (
            f"write {place.kind} 0 to {count - 1}" if count else f"{spec.file} has none, so write one there"
        )
        raise HardwareError(f"{spec.name}: there is no {place.kind} {place.number}; {there}")


def _nothing_leads(sites: GpuSites, source: Location, target: Location) -> HardwareError:
    return HardwareError(
        f"{sites.spec.name}: no path of links from {source.kind} {source.number} to {target.kind} "
        f"{target.number}; write a GPU or host memory as target, of the same host where the source is an SSD"
    )


def _if(start: int, number: int) -> Path:
    """The link of that number, if the cluster has such links."""
    return (start + number,) if start >= 0 else ()


def _hash(source: Location, target: Location, spread: int) -> int:
    """A 64-bit hash, the same in every process (``hash`` of a text is not); MurmurHash3's last steps."""
    mixed = 0
    for word in (
        source.number << 3 | PLACE_NUMBERS[source.kind],
        target.number << 3 | PLACE_NUMBERS[target.kind],
        spread,
    ):
        mixed = ((mixed ^ (word & _64_BITS)) * 0xFF51AFD7ED558CCD) & _64_BITS
        mixed ^= mixed >> 33
    mixed = (mixed * 0xC4CEB9FE1A85EC53) & _64_BITS
    return mixed ^ mixed >> 33
