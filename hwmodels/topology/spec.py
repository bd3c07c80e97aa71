"""The checked content of a cluster file: counts, rates, and the source of each number."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.topology.link import LINK_KINDS

MAX_GPUS: Final = 131_072  # links are stored individually: 2 kB per GPU
MAX_SPINES: Final = 4096
MAX_UPLINKS: Final = 524_288  # cables from leaves to spines, also stored individually: 350 B each
MAX_HOST_MEMORY_BYTES: Final = 10**15  # fifty times the largest servers
SSD_OWNERS: Final = ("gpu", "host")
REMOTE_OWNERS: Final = ("gpu", "host", "cluster")
_FASTEST_BYTES_PER_S: Final = 1e15  # a thousand times the memory of any GPU: higher values are unit errors
_SLOWEST_BYTES_PER_S: Final = 1e3  # a modem of 1990: with less, loads take longer than the clock can count
_BYTES_PER_GBIT: Final = 1e9 / 8
_LEAST_EFFICIENCY: Final = 0.001
_MOST_OVERSUBSCRIPTION: Final = 1000.0
_LONGEST_LATENCY_S: Final = 10.0
_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes per second of one direction, as in the datasheet or paper, and the source."""

    bytes_per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Common properties of all links of one kind.

    efficiency: the share of the capacity that the bytes of a transfer reach, above 0, at most 1. latency_s:
    what each such link on a path adds before the first byte arrives. Both with their source.
    """

    efficiency: float
    efficiency_source: str
    latency_s: float
    latency_source: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """Leaf switches and the spines between them.

    hosts: on one leaf (or, with ``rails``, on one set of leaves: NIC k of each of these hosts goes to leaf k
    of the set, "rail-optimised"); None: all hosts. spines: every leaf has a link to each. oversubscription:
    total rate of a leaf's NICs over the total rate of its links to the spines, at least 1.
    """

    hosts: int | None = None
    spines: int = 1
    oversubscription: float = 1.0
    rails: bool = False
    source: str = "a single leaf switch, which never limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster of equal hosts. A field that is None does not exist in the cluster.

    gpu: a name of the GPU catalogue. host_memory: bytes per host. pcie: between a GPU and its host, shared by
    ``pcie_shared_by`` neighbours. pcie_peer: rate of one GPU's own PCIe port, if it is more than its share
    towards the host; GPUs of a host without NVLink reach each other at this rate. nvlink: per GPU and
    direction, within domains of ``nvlink_domain_gpus`` (None: one domain per host; a multiple of a host:
    several hosts). nic: one NIC, used by ``gpus_per_nic`` neighbours. ssd: per GPU or per host. remote: out
    of the store, per GPU (a host then gets the sum of its GPUs), per host, or for all together. dram: read
    rate of host memory, and equal write rate; left out if it never limits. cpu_cores: of a host, if known.
    kv: the most KV one GPU sends to another, whatever the links carry. classes: one LinkClass for each of
    LINK_KINDS. Raises HardwareError, which names ``file`` and the key.
    """

    name: str
    file: str
    gpu: str
    hosts: int
    gpus_per_host: int
    host_memory_bytes: int
    host_memory_source: str
    pcie: Rate
    classes: Mapping[str, LinkClass]
    source: str
    pcie_shared_by: int = 1
    pcie_peer: Rate | None = None
    nvlink: Rate | None = None
    nvlink_domain_gpus: int | None = None
    nic: Rate | None = None
    gpus_per_nic: int = 1
    leaves: Leaves = Leaves()
    ssd: Rate | None = None
    ssd_per: str = "gpu"
    remote: Rate | None = None
    remote_per: str = "host"
    dram: Rate | None = None
    kv: Rate | None = None
    cpu_cores: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", MappingProxyType(dict(self.classes)))
        _check_counts(self)
        _check_rates(self)
        _check_network(self)

    @property
    def gpus(self) -> int:
        """GPUs of all hosts together."""
        return self.hosts * self.gpus_per_host

    @property
    def nics_per_host(self) -> int:
        """NICs of one host; 0 in a cluster without network."""
        return self.gpus_per_host // self.gpus_per_nic if self.nic else 0

    @property
    def domain_gpus(self) -> int:
        """GPUs of one NVLink domain; 0 without NVLink."""
        return (self.nvlink_domain_gpus or self.gpus_per_host) if self.nvlink else 0

    def holds_instances_of(self, gpus: int) -> bool:
        """Whether instances of so many GPUs lie in one host each, or fill hosts of one NVLink domain."""
        if self.gpus_per_host % gpus == 0:
            return True
        return gpus % self.gpus_per_host == 0 and self.domain_gpus > 0 and self.domain_gpus % gpus == 0

    @property
    def instance_sizes(self) -> str:
        """What ``holds_instances_of`` accepts, for errors."""
        over = (
            f", or a multiple of {self.gpus_per_host} that divides the {self.domain_gpus} of an NVLink domain"
        )
        wide = self.domain_gpus > self.gpus_per_host
        return f"a divisor of the {self.gpus_per_host} GPUs of a host{over if wide else ''}"

    @property
    def hosts_per_leaf(self) -> int:
        """Hosts whose NICs go to the same leaf (or, with rails, to the same set of leaves)."""
        return min(self.leaves.hosts or self.hosts, self.hosts)

    @property
    def leaf_switches(self) -> int:
        """Leaves of the whole cluster; 0 without network."""
        per_set = self.nics_per_host if self.leaves.rails else 1
        return -(-self.hosts // self.hosts_per_leaf) * per_set if self.nic else 0

    def refuse(self, key: str, reason: str) -> HardwareError:
        """The error for ``key``."""
        return HardwareError(f"{self.file}: {key} {reason}")


def hosts_x_gpus(hosts: int, gpus_per_host: int, base: ClusterSpec) -> ClusterSpec:
    """``base`` with this many hosts of this many GPUs; HardwareError if they do not fit together.

    A NIC, PCIe switch or NVLink domain that served all GPUs of a host still does; a smaller one keeps its
    number of GPUs, which must divide the new number, as must a leaf's share of the hosts.
    """
    old = base.gpus_per_host
    name = f"{base.name}_{hosts}x{gpus_per_host}"
    file = f"{base.file} with {hosts} hosts of {gpus_per_host} GPUs"
    if type(gpus_per_host) is not int or gpus_per_host < 1:
        raise base.refuse("gpus_per_host", f"is {gpus_per_host!r}; write a whole number of at least 1")

    def scaled(count: int) -> int:
        return gpus_per_host if count == old else count

    return replace(
        base,
        name=name,
        file=file,
        hosts=hosts,
        gpus_per_host=gpus_per_host,
        pcie_shared_by=scaled(base.pcie_shared_by) if base.pcie_shared_by > 1 else 1,
        gpus_per_nic=scaled(base.gpus_per_nic) if base.gpus_per_nic > 1 else 1,
        nvlink_domain_gpus=None if base.nvlink_domain_gpus == old else base.nvlink_domain_gpus,
    )


def at_efficiency(efficiency: float, base: ClusterSpec, *kinds: str) -> ClusterSpec:
    """``base`` with this efficiency on links of these kinds, or on all: 1 gives the closed forms."""
    source = "set by the caller"
    changed = {
        kind: replace(link_class, efficiency=efficiency, efficiency_source=source)
        for kind, link_class in base.classes.items()
        if not kinds or kind in kinds
    }
    return replace(base, classes={**base.classes, **changed})


def with_rate(key: str, gbps: float, base: ClusterSpec) -> ClusterSpec:
    """``base`` with another rate (Gbit/s) at ``key``: pcie, nvlink, nic, ssd or remote.

    HardwareError if ``base`` has no such link, or no such link can have the rate.
    """
    if getattr(base, key) is None:
        raise base.refuse(key, f"is missing; leave cluster.{key}_gbps out, or write a cluster that has it")
    rate = Rate(gbps * _BYTES_PER_GBIT, "set by the caller")
    return replace(base, **{key: rate})  # type: ignore[arg-type]


def shown(value: object) -> str:
    """A value in short form for a sentence, however many digits a number has."""
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = _SHOWN_CHARS
    try:
        text = short.repr(value)
    except ValueError:  # Python formats no integer of over 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _check_counts(spec: ClusterSpec) -> None:
    wanted = {
        "hosts": (spec.hosts, MAX_GPUS),
        "gpus_per_host": (spec.gpus_per_host, MAX_GPUS),
        "host_memory.bytes": (spec.host_memory_bytes, MAX_HOST_MEMORY_BYTES),
        "pcie.shared_by": (spec.pcie_shared_by, MAX_GPUS),
        "nvlink.domain_gpus": (spec.nvlink_domain_gpus, MAX_GPUS),
        "nic.gpus": (spec.gpus_per_nic, MAX_GPUS),
        "leaf.hosts": (spec.leaves.hosts, MAX_GPUS),
        "cpu.cores": (spec.cpu_cores, MAX_GPUS),
        "leaf.spines": (spec.leaves.spines, MAX_SPINES),
    }
    optional = {"nvlink.domain_gpus", "leaf.hosts", "cpu.cores"}
    for key, (count, most) in wanted.items():
        if count is None and key in optional:
            continue
        if type(count) is not int or not 1 <= count <= most:
            raise spec.refuse(key, f"is {shown(count)}; write a whole number from 1 to {most}")
    if spec.gpus > MAX_GPUS:
        raise spec.refuse("hosts", f"times gpus_per_host is {spec.gpus} GPUs; write at most {MAX_GPUS}")
    for key, count in (("pcie.shared_by", spec.pcie_shared_by), ("nic.gpus", spec.gpus_per_nic)):
        if spec.gpus_per_host % count:
            raise spec.refuse(key, f"is {count}; write a divisor of the {spec.gpus_per_host} GPUs of a host")
    if spec.domain_gpus and spec.gpus_per_host % spec.domain_gpus and spec.domain_gpus % spec.gpus_per_host:
        raise spec.refuse(
            "nvlink.domain_gpus",
            f"is {spec.domain_gpus}; write a divisor or a multiple of the {spec.gpus_per_host} of a host",
        )


def _check_rates(spec: ClusterSpec) -> None:
    for key in ("pcie", "pcie_peer", "nvlink", "nic", "ssd", "remote", "dram", "kv"):
        rate: Rate | None = getattr(spec, key)
        if rate and not _SLOWEST_BYTES_PER_S <= rate.bytes_per_s <= _FASTEST_BYTES_PER_S:
            raise spec.refuse(
                key,
                f"is {rate.bytes_per_s:g} bytes per second; write a rate from {_SLOWEST_BYTES_PER_S:g} to "
                f"{_FASTEST_BYTES_PER_S:g}",
            )
    for kind in LINK_KINDS:
        if kind not in spec.classes:
            raise spec.refuse("efficiency", f"lacks {kind}; write one for each of {', '.join(LINK_KINDS)}")
        share, latency_s = spec.classes[kind].efficiency, spec.classes[kind].latency_s
        if not _LEAST_EFFICIENCY <= share <= 1.0:
            raise spec.refuse(
                f"efficiency.{kind}", f"is {share:g}; write a share from {_LEAST_EFFICIENCY:g} to 1"
            )
        if not 0.0 <= latency_s <= _LONGEST_LATENCY_S:
            raise spec.refuse(f"latency_s.{kind}", f"is {latency_s:g}; write seconds from 0 to 10")
    if spec.pcie_peer and spec.pcie_peer.bytes_per_s < spec.pcie.bytes_per_s:
        raise spec.refuse(
            "pcie_peer", "is slower than pcie, whose traffic passes through it; write at least as much"
        )


def _check_network(spec: ClusterSpec) -> None:
    for key, owner, owners in (
        ("ssd.per", spec.ssd_per, SSD_OWNERS),
        ("remote.per", spec.remote_per, REMOTE_OWNERS),
    ):
        if owner not in owners:
            raise spec.refuse(key, f"is {owner!r}; write one of {', '.join(owners)}")
    share = spec.leaves.oversubscription
    if not 1.0 <= share <= _MOST_OVERSUBSCRIPTION:
        raise spec.refuse(
            "leaf.oversubscription", f"is {share:g}; write a ratio from 1 to {_MOST_OVERSUBSCRIPTION:g}"
        )
    if spec.nic is None and spec.hosts > 1:
        raise spec.refuse("nic", f"is missing; {spec.hosts} hosts need a network, so write one, or one host")
    if (uplinks := spec.leaf_switches * spec.leaves.spines) > MAX_UPLINKS and spec.leaf_switches > 1:
        raise spec.refuse(
            "leaf.spines",
            f"times the {spec.leaf_switches} leaves is {uplinks} links; write at most "
            f"{MAX_UPLINKS // spec.leaf_switches}, or more leaf.hosts",
        )
