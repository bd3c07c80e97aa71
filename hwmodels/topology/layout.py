"""The links of a cluster, grouped by kind, so that a link's index can be computed."""

from collections.abc import Iterator
from dataclasses import dataclass

from hwmodels.topology.link import Link
from hwmodels.topology.spec import ClusterSpec, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCounts:
    """Numbers of components in the whole cluster; 0 if there are none.

    switches: PCIe links towards a host's memory in addition to those of the GPUs' own ports. nic_set_hosts:
    hosts whose NICs go to the same leaves. leaf_nics: NICs of one leaf. up_spines: spines that a leaf is
    linked to.
    """

    switches: int
    nics: int
    domains: int
    ssds: int
    remotes: int
    nic_set_hosts: int
    leaves: int
    leaf_nics: int
    up_spines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Index of the first link of each kind and direction (seen from GPU and host); -1 if there is none.

    Links of a kind are ordered by GPU, PCIe switch, NIC or host; those between leaves and spines by leaf,
    then by spine.
    """

    pcie_in: int
    pcie_out: int
    switch_in: int
    switch_out: int
    nvlink_in: int
    nvlink_out: int
    nic_in: int
    nic_out: int
    leaf_up: int
    spine_down: int
    ssd: int
    remote: int
    dram_in: int
    dram_out: int


def counts_of(spec: ClusterSpec) -> ClusterCounts:
    """The numbers that ``spec`` implies."""
    set_hosts, leaves = spec.hosts_per_leaf, spec.leaf_switches
    per_set = spec.nics_per_host if spec.leaves.rails else 1
    nics = spec.hosts * spec.nics_per_host
    remotes = {"cluster": 1}.get(spec.remote_per, spec.hosts) if spec.remote else 0
    return ClusterCounts(
        switches=spec.gpus // spec.pcie_shared_by if has_switches(spec) else 0,
        nics=nics,
        domains=-(-spec.gpus // spec.domain_gpus) if spec.nvlink else 0,
        ssds=0 if not spec.ssd else spec.gpus if spec.ssd_per == "gpu" else spec.hosts,
        remotes=remotes,
        nic_set_hosts=set_hosts,
        leaves=leaves,
        leaf_nics=set_hosts * spec.nics_per_host // per_set if nics else 0,
        up_spines=spec.leaves.spines if leaves > 1 else 0,
    )


def has_switches(spec: ClusterSpec) -> bool:
    """Whether a GPU's path towards its host has a limit besides its own port."""
    return spec.pcie_shared_by > 1 or spec.pcie_peer is not None


def laid_out(spec: ClusterSpec, counts: ClusterCounts) -> tuple[tuple[Link, ...], Starts]:
    """All links, and where each kind starts."""
    links: list[Link] = []
    starts: dict[str, int] = {}
    for key, new in _groups(spec, counts):
        starts[key] = len(links) if new else -1
        links += new
    return tuple(links), Starts(**starts)


def _groups(spec: ClusterSpec, counts: ClusterCounts) -> Iterator[tuple[str, list[Link]]]:
    """(name in Starts, links) in the order of their indices."""
    gpus, hosts = _gpu_names(spec), [f"host{host}" for host in range(spec.hosts)]
    switches = [f"{host}/switch{k}" for host in hosts for k in range(counts.switches // spec.hosts)]
    nics = [f"{host}/nic{k}" for host in hosts for k in range(spec.nics_per_host)]
    port = spec.pcie_peer or spec.pcie
    for key, names, kind, rate in (
        ("pcie", gpus, "pcie", port),
        ("switch", switches, "pcie_switch", spec.pcie),
        ("nvlink", gpus, "nvlink", spec.nvlink),
        ("nic", nics, "nic", spec.nic),
        ("dram", hosts, "dram", spec.dram),
    ):
        for way in ("in", "out"):
            yield f"{key}_{way}", _links(spec, names, f" {kind} {way}", kind, rate)
    ups = [(leaf, spine) for leaf in range(counts.leaves) for spine in range(counts.up_spines)]
    uplink = _uplink_rate(spec, counts) if ups else None
    yield "leaf_up", _links(spec, [f"leaf{leaf} to spine{spine}" for leaf, spine in ups], "", "leaf", uplink)
    yield (
        "spine_down",
        _links(spec, [f"spine{spine} to leaf{leaf}" for leaf, spine in ups], "", "spine", uplink),
    )
    yield "ssd", _links(spec, gpus if spec.ssd_per == "gpu" else hosts, " ssd", "ssd", spec.ssd)
    stores = hosts if counts.remotes == spec.hosts and spec.remote_per != "cluster" else ["cluster"]
    yield "remote", _links(spec, stores, " remote", "remote", _remote_rate(spec))


def _links(spec: ClusterSpec, names: list[str], suffix: str, kind: str, rate: Rate | None) -> list[Link]:
    if rate is None:
        return []
    efficiency = spec.classes[kind].efficiency
    return [Link(name + suffix, kind, rate.bytes_per_s, efficiency, rate.source) for name in names]


def _gpu_names(spec: ClusterSpec) -> list[str]:
    return [f"host{host}/gpu{local}" for host in range(spec.hosts) for local in range(spec.gpus_per_host)]


def _uplink_rate(spec: ClusterSpec, counts: ClusterCounts) -> Rate:
    """One link of a leaf to one spine: the leaf's NICs, divided by the oversubscription and by the spines."""
    assert spec.nic is not None
    nics, leaves = counts.leaf_nics, spec.leaves
    share = nics / leaves.oversubscription / leaves.spines
    split = f"{nics} NICs of the leaf over {leaves.oversubscription:g} x {leaves.spines} spines"
    return Rate(spec.nic.bytes_per_s * share, f"{split}; {leaves.source}")


def _remote_rate(spec: ClusterSpec) -> Rate | None:
    if spec.remote is None or spec.remote_per != "gpu":
        return spec.remote
    return Rate(spec.remote.bytes_per_s * spec.gpus_per_host, f"{spec.remote.source}, that of a host's GPUs")
