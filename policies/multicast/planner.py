"""Where new instances load from: BlitzScale's multicast planner (OSDI '25, Fig. 11) and its ablations."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from policies.multicast.edges import divided, edge_of, in_gb, relieved
from policies.multicast.groups import (
    Group,
    Grouping,
    Holder,
    SourceOrder,
    groups_to_serve,
    in_play,
    receivers,
    senders,
)
from serving.protocols.planning import Edge, Plan, ScaleUp, Source

Order = Literal["breadth", "depth"]


class MulticastPlanner:
    """Chains that forward while they receive, from sources with a free out-link, inside a leaf if possible.

    order: where served targets join the list of senders. ``breadth`` (after the others: parallel chains, as
    in Fig. 12(b)) or ``depth`` (before them: one long chain, as line 10 is printed). grouping: targets load
    together, sharded, per scale-up ``domain``, or each ``instance`` alone.
    """

    def __init__(self, order: Order = "breadth", grouping: Grouping = "domain") -> None:
        self._order = order
        self._grouping = grouping

    def plan(self, wanted: ScaleUp, behind: Sequence[Source] = ()) -> Plan:
        """Plan the edges; busy out-links are used only if no running instance and no host copy is free.

        behind: replicas that are loading and may forward; they come after complete ones.
        """
        return _multicast(wanted, self._order, self._grouping, behind, prune=True)


class NaivePlanner:
    """The multicast planner without pruning: it also loads from instances whose out-link carries KV."""

    def __init__(self, order: Order = "breadth", grouping: Grouping = "domain") -> None:
        self._order = order
        self._grouping = grouping

    def plan(self, wanted: ScaleUp, behind: Sequence[Source] = ()) -> Plan:
        """As Fig. 11 from line 2 on, over all running instances."""
        return _multicast(wanted, self._order, self._grouping, behind, prune=False)


class OneToOnePlanner:
    """No chains: every target loads from one original source, the sources in turn.

    A source that serves several targets divides its out-link evenly among them. prune: leave out busy
    out-links.
    """

    def __init__(self, prune: bool = False) -> None:
        self._prune = prune

    def plan(self, wanted: ScaleUp, behind: Sequence[Source] = ()) -> Plan:
        """One edge per target, in the order of the multicast planner; no target forwards to another."""
        sources, why = in_play(wanted, self._prune)
        order = senders(sources, wanted.gpus_per_instance)
        groups = groups_to_serve(wanted, order, "domain") if order else []
        takers = [taker for group in receivers(groups) for taker in group]
        fed = Counter(position % len(order) for position in range(len(takers)))
        edges = []
        for position, taker in enumerate(takers):
            turn = position % len(order)
            giver = divided(order[turn], fed[turn])
            edges.append(
                edge_of([giver], [taker], f"source {turn} of {len(order)} in turn, feeds {fed[turn]}")
            )
        return Plan(tuple(edges), _summary(len(takers), wanted, why if order else "no source"))


def _multicast(
    wanted: ScaleUp, order: Order, grouping: Grouping, behind: Sequence[Source], prune: bool
) -> Plan:
    """Fig. 11; the numbers in comments are its lines."""
    sources, why = in_play(wanted, prune, behind)
    first = senders(sources, wanted.gpus_per_instance, behind)  # 1
    if not first:
        return Plan((), _summary(0, wanted, "no source"))
    groups = groups_to_serve(wanted, first, grouping)  # 2, 5
    standing = SourceOrder(first)
    edges: list[Edge] = []  # 3
    for group, takers in zip(groups, receivers(groups)):  # 4
        edges.append(_edge_to(standing, group, takers))
        if order == "depth":  # 10
            standing.put_first(group.leaf, takers)
        else:
            standing.put_last(group.leaf, takers)
    served = sum(len(group.targets) for group in groups)
    edges = relieved(edges, sources, [target for group in groups for target in group.targets])
    return Plan(tuple(edges), _summary(served, wanted, f"{order}; {why}"))  # 11


def _edge_to(standing: SourceOrder, group: Group, takers: list[Holder]) -> Edge:
    """Lines 6 to 9 for one group of targets."""
    leaf, rate = group.leaf, sum([taker.rate for taker in takers])
    held = standing.rate_in(leaf)
    inside = held >= rate
    if inside:
        standing.turn_to(leaf)  # 7
    givers = standing.take(rate, leaf if inside else None)  # 8
    where = f"inside leaf {leaf}" if inside else f"leaf {leaf} has {in_gb(held)} of {in_gb(rate)}, so any"
    return edge_of(givers, takers, where)  # 9


def _summary(served: int, wanted: ScaleUp, why: str) -> str:
    return f"{served} of {wanted.instances} instances; {why}"
