"""How good a plan of parameter loads is: how long it takes, and how much KV traffic it slows down."""

from serving.protocols.planning import Plan, ScaleUp
from serving.vocabulary.actions import Endpoint


def chain_time_s(size_bytes: int, rate_bytes_per_s: float, hops: int, max_unit_bytes: int) -> float:
    """Seconds until the last of ``hops`` targets has everything, each forwarding unit by unit."""
    return (size_bytes + (hops - 1) * max_unit_bytes) / rate_bytes_per_s


def interference(plan: Plan, wanted: ScaleUp) -> int:
    """Number of edges out of a busy link: of a busy source, or of a new replica whose NIC serves prefill."""
    busy: set[Endpoint] = {source.endpoint for source in wanted.sources if source.out_busy}
    busy |= {
        ("replica", target.replica)
        for target in wanted.targets
        if any(port.serves_prefill for port in target.ports)
    }
    return sum(not busy.isdisjoint(edge.sources) for edge in plan.edges)
