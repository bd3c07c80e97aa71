"""When requests come: at the trace's times, or as clients have had their answers."""

from collections.abc import Iterator

from experiments.config.trace_config import TraceConfig
from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S


def requests_of(trace: TraceConfig, arrivals: Iterator[tuple[Request, int]]) -> Requests:
    """What a driver is given: an open loop, or a closed one of ``trace.clients``."""
    if trace.clients is None:
        return arrivals
    return ClosedLoop(arrivals, trace.clients, round(trace.client_think_s * NS_PER_S))
