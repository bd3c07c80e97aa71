"""Which free slots become instances and where they load from: network, stores, a doubling multicast."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from policies.multicast.edges import divided, edge_of, relieved
from policies.multicast.groups import Group, Grouping, Holder, in_play, receivers, senders
from policies.multicast.planner import MulticastPlanner, NaivePlanner, OneToOnePlanner, Order
from serving.protocols.planning import Edge, ScaleUp, Source, Target
from serving.protocols.provisioning import GpuSlot, Provision, Provisioned, endpoint_of
from serving.protocols.scaling import Obstacle
from serving.vocabulary.actions import Endpoint

PlannerName = Literal["multicast", "naive", "one_to_one"]
PLANNERS: tuple[PlannerName, ...] = ("multicast", "naive", "one_to_one")
ORDERS: tuple[Order, ...] = ("breadth", "depth")
GROUPINGS: tuple[Grouping, ...] = ("domain", "instance")
TIERS = ("host", "ssd", "remote")


class NetworkProvisioner:
    """Instances load from other instances (BlitzScale and its ablations).

    With ``scale_up_first`` slots in a holder's scale-up domain come first: the holder sends over the links of
    that domain. The ``planner`` finds sources over the network for the other slots; instances that load
    beside a holder forward what they receive. A host's memory is used only if no replica can send, for its
    own GPUs before others'. ``order`` and ``grouping`` are the planner's; ``one_to_one`` has neither.
    """

    def __init__(
        self,
        planner: PlannerName = "multicast",
        order: Order = "breadth",
        grouping: Grouping = "domain",
        scale_up_first: bool = True,
    ) -> None:
        _check("planner", planner, PLANNERS)
        _check("order", order, ORDERS)
        _check("grouping", grouping, GROUPINGS)
        self._planner: MulticastPlanner | NaivePlanner | OneToOnePlanner
        if planner == "multicast":
            self._planner = MulticastPlanner(order, grouping)
        else:
            self._planner = NaivePlanner(order, grouping) if planner == "naive" else OneToOnePlanner()
        self._prunes = planner == "multicast"
        self._scale_up_first = scale_up_first

    def provision(self, wanted: Provision) -> Provisioned:
        """Choose slots beside a holder, then those of the planner; ties in order of the slots' numbers."""
        draft = _Draft(wanted)
        if self._scale_up_first and wanted.scale_up_bytes_per_s:
            draft.add("beside a holder", _beside_holders(wanted, draft, self._prunes))
        if not self._replica_can_send(wanted, draft):
            draft.add("from their own host's memory", _from_own_hosts(draft))
        slots = draft.slots if draft.left else []
        if slots:
            targets = tuple([Target(slot.replica, slot.ports) for slot in slots])
            ranks = len(slots[0].ports)
            sources = (*wanted.holders, *wanted.host_copies)
            plan = self._planner.plan(ScaleUp(sources, targets, draft.left, ranks), draft.loading)
            draft.add(f"over the network ({plan.reason})", plan.edges)
        return draft.provisioned(overlap=False, obstacle=_beyond_memory(wanted))

    def _replica_can_send(self, wanted: Provision, draft: "_Draft") -> bool:
        """Whether the planner loads from a replica before it considers hosts' memory."""
        if not self._prunes:
            return bool(wanted.holders)
        return not all(source.out_busy for source in (*wanted.holders, *draft.loading))


class StoreProvisioner:
    """Instances load from where their host finds the parameters (ServerlessLLM, AllCache, PipeSwitch).

    Locality-aware: a slot's start time is estimated from the first of ``tiers`` that has the model (``host``,
    its host's memory, ``ssd``, ``remote``). The earliest start wins, ties by number. If no tier has the
    model, the slot loads from the remote store, if there is one. With ``host`` alone and a copy on every host
    this is AllCache; with ``overlap``, which runs the first batch while layers arrive, PipeSwitch. Edges have
    one source, one target, no shards and no rate of their own.
    """

    def __init__(self, tiers: Sequence[str] = ("host", "ssd"), overlap: bool = False) -> None:
        names = [tiers] if isinstance(tiers, str) else list(tiers)
        for name in names:
            _check("tiers", name, TIERS)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"tiers is {names}, and must name one or more of {', '.join(TIERS)}, each once")
        self._tiers = names
        self._overlap = overlap

    def provision(self, wanted: Provision) -> Provisioned:
        """The slots that start earliest, each loading from its nearest tier."""
        draft = _Draft(wanted)
        tiers = self._tiers if "remote" in self._tiers else [*self._tiers, "remote"]
        for position, tier in enumerate(tiers):
            if tier != "host" and tier not in wanted.stores:
                continue
            slots = draft.first_slots(cached=tier == "host", with_ssd=tier == "ssd")
            without = f", not in {' or '.join(tiers[:position])}" if position else ""
            reason = f"{tier} is tier {position + 1} of {len(tiers)}{without}"
            edges = [_storage_edge(slot, tier, reason) for slot in slots]
            draft.add(f"from {tier}", edges)
        return draft.provisioned(self._overlap, "no_copy")


class BinomialProvisioner:
    """Doubling (after lambdaScale's binomial multicast): in each round every holder sends to one new target.

    Approximate. Blocks travel in one order over the binomial tree, while lambdaScale's nodes send each other
    different blocks. Here a source of several targets divides its out-link among them. The last target
    therefore has everything after (rounds x size / bandwidth), not after little more than one size /
    bandwidth. No instance executes loaded layers while it loads. Leaves and busy links are ignored.
    """

    def provision(self, wanted: Provision) -> Provisioned:
        """The first slots by number, loaded in rounds from running replicas, or from host copies if none."""
        draft = _Draft(wanted)
        targets = [Target(slot.replica, slot.ports) for slot in draft.first_slots()]
        if not targets:
            return draft.provisioned(overlap=False, obstacle="no_copy")
        ranks = len(targets[0].ports)
        everyone = (*wanted.holders, *wanted.host_copies)
        sources, why = in_play(ScaleUp(everyone, tuple(targets), len(targets), ranks), prune=False)
        groups = [Group(target.ports[0].leaf, (target,)) for target in targets]
        hops = _doubled(senders(sources, ranks), [taker for (taker,) in receivers(groups)])
        fed = Counter(giver.endpoint for giver, _, _ in hops)
        edges = [
            edge_of(
                [divided(giver, fed[giver.endpoint])],
                [taker],
                f"round {turn}, {fed[giver.endpoint]} from this source",
            )
            for giver, taker, turn in hops
        ]
        draft.add(f"in doublings ({why})", relieved(edges, sources, targets))
        return draft.provisioned(overlap=False, obstacle=_beyond_memory(wanted))


class _Draft:
    """A provision in progress: free slots, how many are still wanted, which replicas are already loading."""

    def __init__(self, wanted: Provision) -> None:
        self.wanted = wanted
        self.left = wanted.count
        self.loading = [source for source in wanted.loading if not source.out_busy]
        self._taken: set[int] = set()
        self._free: dict[int, GpuSlot] | None = None  # all that are not taken, once they were read
        self._edges: list[Edge] = []
        self._parts: list[str] = []

    @property
    def slots(self) -> list[GpuSlot]:
        """All slots that are not taken, by number."""
        if self._free is None:
            slots = sorted(self.wanted.slots, key=lambda slot: slot.replica)
            self._free = {slot.replica: slot for slot in slots if slot.replica not in self._taken}
        return list(self._free.values())

    def first_slots(
        self, cached: bool = False, with_ssd: bool = False, domains: Collection[int] | None = None
    ) -> list[GpuSlot]:
        """As many slots as are wanted, the lowest numbers of those that are not taken."""
        if not self.left:
            return []
        return self.wanted.first_slots(
            self.left, cached=cached, with_ssd=with_ssd, domains=domains, besides=self._taken
        )

    def add(self, reason: str, edges: Sequence[Edge]) -> None:
        """Mark the edges' slots as taken; their numbers precede ``reason``."""
        taken = sorted({number for edge in edges for _, number in edge.targets})
        if not taken:
            return
        started = [self._take(number) for number in taken]
        self.loading += [
            Source(endpoint_of(slot), slot.ports, any(port.serves_prefill for port in slot.ports))
            for slot in started
        ]
        self.left -= len(started)
        self._edges += edges
        self._parts.append(f"{len(started)} {reason}")

    def _take(self, number: int) -> GpuSlot:
        self._taken.add(number)
        slot = self.wanted.slot(number) if self._free is None else self._free.pop(number, None)
        assert slot is not None, f"slot {number} is not free"
        return slot

    def provisioned(self, overlap: bool, obstacle: Obstacle) -> Provisioned:
        """The edges so far; ``obstacle``: why wanted slots stay free."""
        wanted = self.wanted
        parts = list(self._parts)
        if self.left:
            is_free = len(wanted.slots) > len(self._taken)
            parts.append(f"{self.left} without {'a source' if is_free else 'a seat'}")
        served = wanted.count - self.left
        reason = f"{served} of {wanted.count} {wanted.role} instances: {', '.join(parts) or 'none wanted'}"
        return Provisioned(tuple(self._edges), overlap, reason, obstacle if self.left else None)


def _beside_holders(wanted: Provision, draft: _Draft, relays: bool) -> list[Edge]:
    """One edge per scale-up domain with a holder and free slots, the slots by number.

    The holder's GPUs send a part to each slot, and the slots exchange these parts, so that together they
    receive what one link carries. A holder whose out-links are free sends. relays: as over the network, then
    a loading replica, then the busy holder with the fewest loads. Without relays, loading replicas send only
    if there is no holder.
    """
    holders: dict[int, list[Source]] = {}
    for source in wanted.holders:
        holders.setdefault(source.ports[0].domain, []).append(source)
    for source in draft.loading:
        sources = holders.setdefault(source.ports[0].domain, [])
        if relays or all(holder in draft.loading for holder in sources):
            sources.append(source)
    groups: dict[int, list[GpuSlot]] = {}
    for slot in draft.first_slots(domains=holders):
        groups.setdefault(slot.ports[0].domain, []).append(slot)
    edges = []
    for domain, slots in groups.items():
        held = holders[domain]
        giver = min(
            held,
            key=lambda holder: (
                holder.out_busy,
                holder in draft.loading,
                relays and holder.loads,
                holder.endpoint,
            ),
        )
        rate = wanted.scale_up_bytes_per_s
        assert {len(slot.ports) for slot in slots} == {len(giver.ports)}, "a model has one number of ranks"
        takers = [_holder(endpoint_of(slot), Target(slot.replica, slot.ports), rate) for slot in slots]
        behind = ", behind its load," if giver in draft.loading else ""
        why = f"inside domain {domain}, 1 of {len(held)} holders{behind} to {len(slots)}"
        edges.append(edge_of([_holder(giver.endpoint, giver, rate)], takers, why))
    return edges


def _holder(endpoint: Endpoint, end: Source | Target, bytes_per_s: int) -> Holder:
    """A replica as a holder at the scale-up links of its GPUs."""
    lanes = tuple([(port.gpu, bytes_per_s) for port in end.ports])
    return Holder(endpoint, end.ports[0].leaf, lanes, bytes_per_s * len(lanes))


def _beyond_memory(wanted: Provision) -> Obstacle:
    """Why provisioners that load from instances and hosts' memory alone cannot load."""
    in_memory = wanted.holders or wanted.loading or wanted.host_copies
    return "no_path" if in_memory or wanted.first_slots(1, cached=True) else "no_copy"


def _from_own_hosts(draft: _Draft) -> list[Edge]:
    cached = draft.first_slots(cached=True)
    holders = len(draft.wanted.holders)
    why = f"no replica is free to send ({holders} hold it), host memory is nearer than the network"
    return [_storage_edge(slot, "host", why) for slot in cached]


def _storage_edge(slot: GpuSlot, tier: str, why: str) -> Edge:
    """A slot's load from a store, at the store's own rate."""
    place = 0 if tier == "remote" else slot.host
    return Edge(((tier, place),), (endpoint_of(slot),), 0, (), f"{tier} {place}: {why}")


def _doubled(standing: Iterable[Holder], takers: Sequence[Holder]) -> list[tuple[Holder, Holder, int]]:
    """(source, target, round from 1): targets served first send first in the next round, targets in order."""
    hops: list[tuple[Holder, Holder, int]] = []
    givers, turn = list(standing), 0
    while givers and len(hops) < len(takers):
        turn += 1
        pairs = list(zip(givers, takers[len(hops) :]))
        hops += [(giver, taker, turn) for giver, taker in pairs]
        givers += [taker for _, taker in pairs]
    return hops


def _check(key: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{key} is {value}, and must be {', '.join(known[:-1])} or {known[-1]}")
