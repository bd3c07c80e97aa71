"""What a provisioner receives when instances are wanted, and its answer: slots and their sources."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from serving.protocols.planning import Edge, Port, Source
from serving.protocols.scaling import Obstacle
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.fact import fact
from serving.vocabulary.replica import Role


@fact
class GpuSlot:
    """Free GPUs on which a replica could be started.

    replica: the number that it would have. gpus: its GPUs. host: that of the first GPU. ports: one per GPU,
    all in one scale-up domain. cached: the host's memory has the parameters. no_ssd: the SSD of a host is
    lost.
    """

    replica: int
    gpus: tuple[int, ...]
    host: int
    ports: tuple[Port, ...]
    cached: bool
    no_ssd: bool = False


class FreeSlots(Sequence[GpuSlot]):
    """The free slots of a model, each of which is made when it is read: a cluster may have many thousands."""

    @abstractmethod
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

    @abstractmethod
    def numbered(self, replica: int) -> GpuSlot | None:
        """As ``Provision.slot``."""


@fact
class Provision:
    """A request for instances of a model.

    count: instances wanted. slots: all free slots, made when they are read; ``first_slots`` makes only those
    that it returns. holders: replicas that have all parameters, whether or not they serve. host_copies: hosts
    whose memory has all parameters. stores: other places with the parameters, nearest first: ``ssd`` (of each
    slot's own host) and ``remote``. scale_up_bytes_per_s: rate of one GPU inside its scale-up domain; 0
    without a domain. loading: replicas to which an earlier load brings all parameters, and which can forward
    them.
    """

    model: str
    role: Role
    count: int
    slots: Sequence[GpuSlot]
    holders: tuple[Source, ...]
    host_copies: tuple[Source, ...]
    stores: tuple[str, ...]
    scale_up_bytes_per_s: int
    loading: tuple[Source, ...] = ()

    def first_slots(
        self,
        count: int,
        *,
        cached: bool = False,
        with_ssd: bool = False,
        host: int = -1,
        domains: Collection[int] | None = None,
        besides: Collection[int] = (),
    ) -> list[GpuSlot]:
        """Up to ``count`` free slots, the lowest numbers first.

        cached: only those with ``cached``. with_ssd: none with ``no_ssd``. host: only those of this host (-1:
        of any). domains: only those in these scale-up domains (None: in any). besides: replica numbers of
        slots that are left out.
        """
        slots = self.slots
        if isinstance(slots, FreeSlots):
            return slots.first(
                count, cached=cached, with_ssd=with_ssd, host=host, domains=domains, besides=besides
            )
        fitting = [
            slot
            for slot in sorted(slots, key=lambda slot: slot.replica)
            if (slot.cached or not cached)
            and not (with_ssd and slot.no_ssd)
            and host in (-1, slot.host)
            and (domains is None or slot.ports[0].domain in domains)
            and slot.replica not in besides
        ]
        return fitting[:count]

    def slot(self, replica: int) -> GpuSlot | None:
        """The free slot with this number; None: there is none."""
        if isinstance(self.slots, FreeSlots):
            return self.slots.numbered(replica)
        return next((slot for slot in self.slots if slot.replica == replica), None)


@fact
class Provisioned:
    """Loads that start the wanted instances.

    edges: in the order in which they may begin; each target is a free slot. A source that is a target of an
    earlier edge forwards what it has received. overlap: the instances run their first batch layer by layer
    during loading. obstacle: why fewer instances start than the free slots allow; None: not given.
    """

    edges: tuple[Edge, ...]
    overlap: bool
    reason: str
    obstacle: Obstacle | None = None


class Provisioner(Protocol):
    """Decides on which GPUs instances start, and from where they load."""

    def provision(self, wanted: Provision) -> Provisioned:
        """Asked when a scaler's ``load`` is carried out: loads to at most ``wanted.count`` slots."""


def endpoint_of(slot: GpuSlot) -> Endpoint:
    """Return the slot as an endpoint of a load."""
    return ("replica", slot.replica)


@fact
class MissingInstances:
    """The number of requested instances that do not start, and the reason."""

    count: int
    obstacle: Obstacle


def missing_instances(wanted: Provision, answer: Provisioned) -> MissingInstances | None:
    """Return how many wanted instances the answer does not start, and why; None if it starts all."""
    started = sum(len(edge.targets) for edge in answer.edges)
    if started >= wanted.count:
        return None
    if started >= len(wanted.slots):
        return MissingInstances(wanted.count - started, "no_gpu")
    return MissingInstances(wanted.count - started, answer.obstacle or _default_obstacle(wanted))


def _default_obstacle(wanted: Provision) -> Obstacle:
    """The obstacle to report if the provisioner gives none."""
    sources = wanted.holders or wanted.host_copies or wanted.loading or wanted.stores
    return "no_path" if sources or wanted.first_slots(1, cached=True) else "no_copy"
