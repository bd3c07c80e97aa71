"""The state kept per server, the intervals and timeouts of requests to it, and what is counted."""

import asyncio
from dataclasses import dataclass, field

from realexec.http.probe import Server
from serving.vocabulary.actions import AllocateGpus


def check_gpus(action: AllocateGpus) -> None:
    """Check that replica n gets the GPUs of server n: the n-th group of that size."""
    if action.replica != action.gpus[0] // len(action.gpus):
        raise RuntimeError(f"replica {action.replica} has GPUs {action.gpus}, which belong to another server")


@dataclass(frozen=True, slots=True)
class Times:
    """``report_s``: between two reports of tokens; ``scrape_s``: between two reads of a server's metrics.

    ``timeout_s``: of a short request to a server; ``silence_s``: after it without a token a server is lost.
    """

    report_s: float = 0.05
    scrape_s: float = 0.25
    timeout_s: float = 10.0
    silence_s: float = 300.0


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The state of one server. ``busy_ns``: how long it had requests of this run, until ``since_ns``."""

    server: Server
    streams: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)
    lost: bool = False
    asleep: bool = False
    heard_ns: int = 0
    since_ns: int = 0
    busy_ns: int = 0
    checking: "asyncio.Task[str | None] | None" = None


@dataclass(slots=True, kw_only=True)
class HttpCounts:
    """What really happened in a run. ``short``: answers that ended before the requested length.

    ``handed_over``: requests whose KV went from one server to another; ``slept``,
    ``woken``: how often servers went to sleep or were woken since the run began.
    """

    moved: int = 0
    resumed: int = 0
    short: int = 0
    observed: int = 0
    handed_over: int = 0
    slept: int = 0
    woken: int = 0
