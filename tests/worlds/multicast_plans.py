"""Holders, seats and plans of a multicast, in short."""

from math import inf

from serving.protocols.planning import Plan, Port, Source
from serving.vocabulary.actions import Endpoint

GB = 1_000_000_000
B = 12_500_000_000  # 100 Gbps
SIZE_24B, LAYER_24B = 48 * GB, 1_200_000_000


def port(gpu: int, domain: int | None = None, leaf: int = 0, rate: int = B, nic: int | None = None) -> Port:
    """A GPU with a NIC and a domain of its own, unless told."""
    return Port(gpu, gpu if domain is None else domain, leaf, gpu if nic is None else nic, rate)


def source(one: int, *ports: Port, busy: bool = False) -> Source:
    return Source(("replica", one), ports or (port(one),), busy)


def host(one: int, *ports: Port, busy: bool = False) -> Source:
    return Source(("host", one), ports or (port(-1, domain=-1, nic=one),), busy)


def arrows(plan: Plan) -> list[tuple[list[int], list[int]]]:
    return [([number for _, number in edge.sources], [n for _, n in edge.targets]) for edge in plan.edges]


def chains_of(plan: Plan) -> tuple[tuple[Endpoint, ...], ...]:
    """Who hears from whom, as the papers draw it: each chain begins at a source or at a stop of one before.

    Sources and targets of an edge are matched in order.
    """
    chains: list[list[Endpoint]] = []
    tails: dict[Endpoint, list[Endpoint]] = {}
    for edge in plan.edges:
        for position, taker in enumerate(edge.targets):
            giver = edge.sources[position * len(edge.sources) // len(edge.targets)]
            chain = tails.pop(giver, None)
            if chain is None:
                chain = [giver]
                chains.append(chain)
            chain.append(taker)
            tails[taker] = chain
    return tuple(map(tuple, chains))


def stops(*chains: list[int]) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(tuple(("replica", number) for number in chain) for chain in chains)


def pair(one: int, domain: int) -> tuple[Port, Port]:
    """The two GPUs of a tp 2 instance."""
    return port(2 * one, domain), port(2 * one + 1, domain)


def scale_time_s(plan: Plan, size_bytes: int, max_unit_bytes: int) -> float:
    """Seconds until every target has all ``size_bytes`` at the plan's rates, undisturbed; 0 if empty.

    Each unit crosses a hop once; after the first unit the slowest hop so far sets the pace. With equal rates
    this is ``chain_time_s`` of the longest chain. The exchange inside a scale-up domain is not counted.
    """
    ways: dict[Endpoint, tuple[float, float]] = {}
    last_s = 0.0
    for edge in plan.edges:
        before = [ways.get(source, (0.0, inf)) for source in edge.sources]
        unit_s = max(way[0] for way in before) + max_unit_bytes / edge.rate_bytes_per_s
        pace = min(edge.rate_bytes_per_s, min(way[1] for way in before))
        ways.update(dict.fromkeys(edge.targets, (unit_s, pace)))
        last_s = max(last_s, unit_s + (size_bytes - max_unit_bytes) / pace)
    return last_s
