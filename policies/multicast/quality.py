"""How good a plan of parameter loads is: how long it takes, and how much KV traffic it slows down."""

from math import inf

from serving.protocols.planning import Plan, ScaleUp
from serving.vocabulary.actions import Endpoint


def chain_time_s(size_bytes: int, rate_bytes_per_s: float, hops: int, max_unit_bytes: int) -> float:
    """Seconds until the last of ``hops`` targets has everything, each forwarding unit by unit."""
    return (size_bytes + (hops - 1) * max_unit_bytes) / rate_bytes_per_s


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


def interference(plan: Plan, wanted: ScaleUp) -> int:
    """Number of edges out of a busy link: of a busy source, or of a new replica whose NIC serves prefill."""
    busy: set[Endpoint] = {source.endpoint for source in wanted.sources if source.out_busy}
    busy |= {
        ("replica", target.replica)
        for target in wanted.targets
        if any(port.serves_prefill for port in target.ports)
    }
    return sum(not busy.isdisjoint(edge.sources) for edge in plan.edges)
