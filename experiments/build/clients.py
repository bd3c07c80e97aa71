"""When requests arrive: at the trace's times, or when closed-loop clients have received their answers."""

from collections.abc import Iterator

from experiments.config.trace_config import TraceConfig
from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S


def requests_of(trace: TraceConfig, arrivals: Iterator[tuple[Request, int]]) -> Requests:
    """Return the driver's requests: an open loop, or a closed loop of ``trace.clients`` clients."""
    if trace.clients is None:
        return arrivals
    return ClosedLoop(arrivals, trace.clients, round(trace.client_think_s * NS_PER_S))
