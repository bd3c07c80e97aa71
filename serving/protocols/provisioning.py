"""What a provisioner sees when instances are wanted, and its answer: slots, and their sources."""

from typing import Protocol

from serving.protocols.planning import Edge, Port, Source
from serving.protocols.scaling import Obstacle
from serving.vocabulary.actions import Endpoint
from serving.vocabulary.fact import fact
from serving.vocabulary.replica import Role


@fact
class GpuSlot:
    """GPUs of one host that could become a replica: the replica's number, and one port per GPU.

    cached: the host's memory has the parameters. The ports' domain is the slot's scale-up domain. no_ssd: the
    host's SSD is lost.
    """

    replica: int
    gpus: tuple[int, ...]
    host: int
    ports: tuple[Port, ...]
    cached: bool
    no_ssd: bool = False


@fact
class Provision:
    """``count`` instances of a model are wanted on some of the free ``slots`` (by number).

    holders: replicas that have all parameters, also those still serving elsewhere. host_copies: hosts whose
    memory has them, with the ports of the host's NICs. stores: where else they are, nearest first: ``ssd`` of
    each slot's own host and ``remote``. scale_up_bytes_per_s: of one GPU inside its domain; 0 without a
    domain. loading: replicas that get all parameters from an earlier load and can forward them meanwhile.
    """

    model: str
    role: Role
    count: int
    slots: tuple[GpuSlot, ...]
    holders: tuple[Source, ...]
    host_copies: tuple[Source, ...]
    stores: tuple[str, ...]
    scale_up_bytes_per_s: int
    loading: tuple[Source, ...] = ()


@fact
class Provisioned:
    """Loads that start the wanted instances, in the order in which they may begin.

    Each target of an edge is a slot of the request, once. An edge without shards has one source and one
    target, rank to same rank, at the rate of the path; its own rate is then 0. A source that is also a target
    of an earlier edge forwards what it receives. overlap: the instances run their first batch layer by layer
    during loading. obstacle: why fewer instances start than the free slots allow; None: not named.
    """

    edges: tuple[Edge, ...]
    overlap: bool
    reason: str
    obstacle: Obstacle | None = None


class Provisioner(Protocol):
    """Decides which slots become instances and from which sources they get their parameters."""

    def provision(self, wanted: Provision) -> Provisioned:
        """Return edges for at most ``wanted.count`` slots; fewer, or none, if no path leads to them."""


def endpoint_of(slot: GpuSlot) -> Endpoint:
    """Return the slot as an endpoint of a load."""
    return ("replica", slot.replica)


@fact
class MissingInstances:
    """``count`` instances of a request do not start, and the reason."""

    count: int
    obstacle: Obstacle


def missing_instances(wanted: Provision, answer: Provisioned) -> MissingInstances | None:
    """Return the wanted instances that the answer does not start; None if it starts all."""
    started = sum(len(edge.targets) for edge in answer.edges)
    if started >= wanted.count:
        return None
    if started >= len(wanted.slots):
        return MissingInstances(wanted.count - started, "no_gpu")
    return MissingInstances(wanted.count - started, answer.obstacle or _default_obstacle(wanted))


def _default_obstacle(wanted: Provision) -> Obstacle:
    """The obstacle for an answer that names none."""
    sources = wanted.holders or wanted.host_copies or wanted.loading or wanted.stores
    return "no_path" if sources or any(slot.cached for slot in wanted.slots) else "no_copy"
