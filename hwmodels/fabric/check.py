"""Checks that rates are possible, fair and without waste: from the definition, not by solving again."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hwmodels.fabric.moving import Moving

TOLERANCE: Final = 1e-9

OnLinks = Sequence[Mapping[int, Moving]]


def faults(
    moving: Mapping[int, Moving], on_links: OnLinks, capacities: Sequence[float], used: Sequence[float]
) -> list[str]:
    """The faults, one sentence each.

    Rates stay within each link's capacity and each flow's cap. A flow below its cap is stopped by a full link
    on which no flow of its priority has more per weight and none of lower priority has anything.
    """
    rates = [sum(flow.rate for flow in flows.values()) for flows in on_links]
    joined = [flow for flow in moving.values() if flow.joined]
    return [
        *_overfull(rates, capacities, used),
        *_unfair(joined, on_links, capacities, rates),
        *_misplaced(joined, on_links),
    ]


def _overfull(rates: Sequence[float], capacities: Sequence[float], used: Sequence[float]) -> Iterator[str]:
    for link, (rate, capacity) in enumerate(zip(rates, capacities)):
        if rate > capacity * (1 + TOLERANCE):
            yield f"link {link} carries {rate} bytes/s, above its capacity of {capacity}"
        if abs(rate - used[link]) > capacity * TOLERANCE:
            yield f"link {link} is booked with {used[link]} bytes/s and carries {rate}"


def _unfair(
    joined: Sequence[Moving], on_links: OnLinks, capacities: Sequence[float], rates: Sequence[float]
) -> Iterator[str]:
    for flow in joined:
        cap = flow.spec.cap_bytes_per_s
        if flow.rate > cap * (1 + TOLERANCE) or flow.rate < 0:
            yield f"flow {flow.number} gets {flow.rate} bytes/s and its cap is {cap}"
        stopped = flow.rate >= cap * (1 - TOLERANCE) or any(
            rates[link] >= capacities[link] * (1 - TOLERANCE) and _leads(flow, on_links[link])
            for link in flow.links
        )
        if not stopped:
            yield f"flow {flow.number} gets {flow.rate} bytes/s and neither a link nor its cap limits it"


def _leads(flow: Moving, others: Mapping[int, Moving]) -> bool:
    """Whether no other flow on this link has a higher rate per weight."""
    level = flow.rate / flow.spec.weight
    for other in others.values():
        if other.priority < flow.priority and other.rate > 0:
            return False
        if other.priority == flow.priority and other.rate / other.spec.weight > level * (1 + TOLERANCE):
            return False
    return True


def _misplaced(joined: Sequence[Moving], on_links: OnLinks) -> Iterator[str]:
    counted = sum(len(flows) for flows in on_links)
    if counted != sum(len(flow.links) for flow in joined):
        yield f"{counted} places on links are taken by {len(joined)} flows that do not need as many"
    for flow in joined:
        if any(on_links[link].get(flow.number) is not flow for link in flow.links):
            yield f"flow {flow.number} is missing on one of its links"
