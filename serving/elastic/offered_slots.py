"""The free slots that a provisioner is shown: made from sets of groups when they are read."""

from collections.abc import Collection, Iterator, Sequence
from typing import overload

from serving.elastic.free_groups import Offer, span
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.planning import Port
from serving.protocols.provisioning import FreeSlots, GpuSlot


class OfferedSlots(FreeSlots):
    """``offer``: the free groups. ``prefilling_nics``: the NICs behind which a GPU serves prefill, as bits.

    ``copies``: hosts whose memory has the parameters. What is shown is as of the moment of the offer.
    """

    __slots__ = ("_all", "_cluster", "_copies", "_made", "_offer", "_prefilling_nics")

    def __init__(
        self, offer: Offer, cluster: ClusterMap, copies: Collection[int], prefilling_nics: int
    ) -> None:
        self._offer, self._cluster = offer, cluster
        self._copies, self._prefilling_nics = frozenset(copies), prefilling_nics
        self._all: tuple[GpuSlot, ...] | None = None
        self._made: dict[int, GpuSlot] = {}  # by number: the policy and the check of its answer read the same

    @overload
    def __getitem__(self, place: int) -> GpuSlot: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[GpuSlot]: ...

    def __getitem__(self, place: int | slice) -> GpuSlot | Sequence[GpuSlot]:
        return self._slots()[place]

    def __len__(self) -> int:
        return self._offer.groups.bit_count()

    def __iter__(self) -> Iterator[GpuSlot]:
        return iter(self._slots())

    def first(
        self,
        count: int,
        *,
        cached: bool,
        with_ssd: bool,
        host: int,
        domains: Collection[int] | None,
        besides: Collection[int],
    ) -> list[GpuSlot]:
        """As ``Provision.first_slots``."""
        if host >= self._cluster.hosts:
            return []
        among = self._offer.groups if host < 0 else self._beginning_on(host)
        if domains is not None:
            inside = 0
            for domain in domains:
                gpus = self._cluster.gpus_of_domain(domain)
                inside |= span(gpus.start, gpus.stop)
            among &= inside
        if cached and len(self._copies) < self._cluster.hosts:
            held = 0
            for copy in self._copies:
                held |= self._beginning_on(copy)
            among &= held
        if with_ssd:
            for lost in self._cluster.lost_ssds:
                among &= ~self._touching(lost)
        return [self._slot(*slot) for slot in self._offer.first(count, among, frozenset(besides))]

    def numbered(self, replica: int) -> GpuSlot | None:
        """As ``Provision.slot``."""
        first = self._offer.first_gpu(replica)
        return None if first < 0 else self._slot(replica, first)

    def _slots(self) -> tuple[GpuSlot, ...]:
        if self._all is None:
            self._all = tuple([self._slot(number, first) for number, first in self._offer.every()])
        return self._all

    def _slot(self, number: int, first: int) -> GpuSlot:
        slot = self._made.get(number)
        if slot is None:
            slot = self._made[number] = self._make(number, first)
        return slot

    def _make(self, number: int, first: int) -> GpuSlot:
        cluster, gpus = self._cluster, tuple(range(first, first + self._offer.size))
        host, lost_ssds = cluster.host_of(first), cluster.lost_ssds
        return GpuSlot(
            number,
            gpus,
            host=host,
            ports=ports_of(gpus, cluster, self._prefilling_nics),
            cached=host in self._copies,
            no_ssd=bool(lost_ssds) and any(cluster.host_of(gpu) in lost_ssds for gpu in gpus),
        )

    def _beginning_on(self, host: int) -> int:
        """The groups whose first GPU is on this host."""
        count = self._cluster.gpus_per_host
        return span(host * count, (host + 1) * count)

    def _touching(self, host: int) -> int:
        """The groups with a GPU on this host."""
        count = self._cluster.gpus_per_host
        return span(max(0, host * count - self._offer.size + 1), (host + 1) * count)


def ports_of(gpus: Sequence[int], cluster: ClusterMap, prefilling_nics: int) -> tuple[Port, ...]:
    """The ports of these GPUs, those of NICs in the set marked as serving prefill."""
    ports = cluster.ports
    return tuple(
        [_serving(ports[gpu]) if prefilling_nics >> ports[gpu].nic & 1 else ports[gpu] for gpu in gpus]
    )


def _serving(port: Port) -> Port:
    """The port marked as serving prefill; ``replace`` would take five times as long as this construction."""
    return Port(
        gpu=port.gpu,
        domain=port.domain,
        leaf=port.leaf,
        nic=port.nic,
        bandwidth_bytes_per_s=port.bandwidth_bytes_per_s,
        serves_prefill=True,
    )
