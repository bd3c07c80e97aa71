"""Where new instances load from: BlitzScale's multicast planner (OSDI '25, Fig. 11) and its ablations."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Literal

from policies.multicast_groups import (
    Group,
    Grouping,
    Holder,
    SourceOrder,
    groups_to_serve,
    in_play,
    receivers,
    senders,
    sharded,
)
from serving.planning import Edge, Plan, ScaleUp, Source, Target

Order = Literal["breadth", "depth"]


class MulticastPlanner:
    """Chains that forward while they receive, from sources whose out-link is free, inside a leaf if it can.

    order: where served targets stand among the senders. ``breadth`` (behind the others: parallel chains, as
    in Fig. 12(b)) or ``depth`` (before them: one long chain, as line 10 is printed). grouping: targets load
    together, sharded, per scale-up ``domain``, or each ``instance`` alone.
    """

    def __init__(self, order: Order = "breadth", grouping: Grouping = "domain") -> None:
        self._order = order
        self._grouping = grouping

    def plan(self, wanted: ScaleUp) -> Plan:
        """Busy out-links are used only if no running instance and no host copy is free."""
        return _multicast(wanted, self._order, self._grouping, prune=True)


class NaivePlanner:
    """The multicast planner without pruning: it loads from instances whose out-link carries KV too."""

    def __init__(self, order: Order = "breadth", grouping: Grouping = "domain") -> None:
        self._order = order
        self._grouping = grouping

    def plan(self, wanted: ScaleUp) -> Plan:
        """As Fig. 11 from line 2 on, over all running instances."""
        return _multicast(wanted, self._order, self._grouping, prune=False)


class OneToOnePlanner:
    """No chains: every target loads from one original source, the sources in turn.

    A source that serves several divides its out-link evenly among them. prune: leave out busy out-links.
    """

    def __init__(self, prune: bool = False) -> None:
        self._prune = prune

    def plan(self, wanted: ScaleUp) -> Plan:
        """One edge per target, in the order the multicast planner serves them."""
        sources, why = in_play(wanted, self._prune)
        order = senders(sources, wanted.gpus_per_instance)
        groups = groups_to_serve(wanted, order, "domain") if order else []
        takers = [taker for group in receivers(groups) for taker in group]
        fed = Counter(position % len(order) for position in range(len(takers)))
        edges = []
        for position, taker in enumerate(takers):
            turn = position % len(order)
            giver = _divided(order[turn], fed[turn])
            edges.append(_edge([giver], [taker], f"source {turn} of {len(order)} in turn, feeds {fed[turn]}"))
        return Plan(tuple(edges), _summary(len(takers), wanted, why if order else "no source"))


def _multicast(wanted: ScaleUp, order: Order, grouping: Grouping, prune: bool) -> Plan:
    """Fig. 11; the comments give its lines."""
    sources, why = in_play(wanted, prune)
    first = senders(sources, wanted.gpus_per_instance)  # 1
    if not first:
        return Plan((), _summary(0, wanted, "no source"))
    groups = groups_to_serve(wanted, first, grouping)  # 2, 5
    standing = SourceOrder(first)
    edges = []  # 3
    for group, takers in zip(groups, receivers(groups)):  # 4
        edges.append(_served(standing, group, takers))
        if order == "depth":  # 10
            standing.put_first(group.leaf, takers)
        else:
            standing.put_last(group.leaf, takers)
    served = sum(len(group.targets) for group in groups)
    edges = _relieved(edges, sources, [target for group in groups for target in group.targets])
    return Plan(tuple(edges), _summary(served, wanted, f"{order}; {why}"))  # 11


def _served(standing: SourceOrder, group: Group, takers: list[Holder]) -> Edge:
    """Lines 6 to 9 for one group of targets."""
    leaf, rate = group.leaf, sum([taker.rate for taker in takers])
    held = standing.rate_in(leaf)
    inside = held >= rate
    if inside:
        standing.turn_to(leaf)  # 7
    givers = standing.take(rate, leaf if inside else None)  # 8
    where = f"inside leaf {leaf}" if inside else f"leaf {leaf} has {_gb(held)} of {_gb(rate)}, so any"
    return _edge(givers, takers, where)  # 9


def _relieved(edges: list[Edge], sources: list[Source], served: list[Target]) -> list[Edge]:
    """The edges, slower where a source and a new replica that forwards leave through one NIC.

    Each side's own shares were right; only together may they be too much. A host's copy is not looked at.
    """
    ports = {port.gpu: port for source in sources for port in source.ports if port.gpu >= 0}
    mixed = {port.nic for port in ports.values()} & {port.nic for one in served for port in one.ports}
    if not mixed:
        return edges
    ports |= {port.gpu: port for target in served for port in target.ports}
    wish: defaultdict[int, float] = defaultdict(float)
    for edge in edges:
        for shard in edge.shards:
            if shard.source_gpu >= 0:
                wish[ports[shard.source_gpu].nic] += shard.rate_bytes_per_s
    room = {
        port.gpu: port.bandwidth_bytes_per_s / wish[port.nic] for port in ports.values() if port.nic in wish
    }
    return [_slowed(edge, min(room.get(shard.source_gpu, 1.0) for shard in edge.shards)) for edge in edges]


def _slowed(edge: Edge, factor: float) -> Edge:
    if factor > 1 - 1e-9:  # what adding up fractions of a byte may miss
        return edge
    rate = max(1, int(edge.rate_bytes_per_s * factor))
    shards = tuple([replace(shard, rate_bytes_per_s=shard.share * rate) for shard in edge.shards])
    reason = f"{edge.reason}, {_gb(rate)} beside another sender on its NIC"
    return replace(edge, rate_bytes_per_s=rate, shards=shards, reason=reason)


def _edge(givers: list[Holder], takers: list[Holder], why: str) -> Edge:
    rate, shards = sharded(givers, takers)
    sources = tuple([giver.stop for giver in givers])
    return Edge(sources, tuple([taker.stop for taker in takers]), rate, shards, f"{why}: {_gb(rate)}")


def _divided(holder: Holder, among: int) -> Holder:
    lanes = tuple((gpu, max(1, rate // among)) for gpu, rate in holder.lanes)
    return Holder(holder.stop, holder.leaf, lanes, sum(rate for _, rate in lanes))


def _summary(served: int, wanted: ScaleUp, why: str) -> str:
    return f"{served} of {wanted.instances} instances; {why}"


def _gb(bytes_per_s: int) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"
