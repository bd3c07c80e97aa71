"""When requests arrive: at the trace's times, or when closed-loop clients have received their answers."""

from collections.abc import Iterator
from random import Random

from servetwin.assemble.front_end import FrontDoor
from servetwin.assemble.shared_prefixes import finds_own_prompts
from servetwin.assemble.streams import seed_of
from servetwin.config.config import RunConfig
from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S
from simcore.client_timeouts import ClientPlan


def requests_of(
    config: RunConfig, arrivals: Iterator[tuple[Request, int]], door: FrontDoor | None = None
) -> Requests:
    """Return the driver's requests: an open loop, or a closed loop of ``trace.clients`` clients.

    ``door``: the front end that requests go through first; None: there is none. Requests of an open loop have
    its times already (``FrontDoor.entered_ns``).
    """
    trace = config.trace
    if trace.clients is None:
        return arrivals if door is None else door.in_order(arrivals)
    think_ns = round(trace.client_think_s * NS_PER_S)
    return ClosedLoop(arrivals, client_starts_ns(config), think_ns, door, trace.warmup_requests)


def client_plan(config: RunConfig, requests: int, door: FrontDoor | None) -> ClientPlan | None:
    """Return when clients of so many requests give up and send again; None: they wait for ever."""
    trace = config.trace
    if trace.client_timeout_s is None:
        return None
    return ClientPlan(
        timeout_ns=max(1, round(trace.client_timeout_s * NS_PER_S)),
        retries=trace.retries,
        wait_ns=round(trace.retry_wait_s * NS_PER_S),
        requests=requests,
        door=door,
        finds_prompts=finds_own_prompts(config),
    )


def client_starts_ns(config: RunConfig) -> list[int]:
    """Return when each client begins, ascending: the first at 0, the others within ``trace.client_start_s``.

    Drawn uniformly by the seed. Clients that begin at one instant with requests of one length would stay in
    step for the whole run: every batch would begin and end with all of them.
    """
    trace = config.trace
    assert trace.clients is not None, "an open loop has no clients"
    draw = Random(seed_of(config.seed, "client starts"))
    spread_ns = round(trace.client_start_s * NS_PER_S)
    starts_ns = sorted([round(draw.random() * spread_ns) for _ in range(trace.clients)])
    return [start_ns - starts_ns[0] for start_ns in starts_ns]
