"""What is under way with each server, when it is asked what, and what is counted."""

import asyncio
from dataclasses import dataclass, field

from realexec.http.probe import Server


@dataclass(frozen=True, slots=True)
class Times:
    """``report_s``: between two reports of tokens; ``scrape_s``: between two looks at a server's metrics.

    ``timeout_s``: in which a server answers a short question; ``silence_s``: in which streams bring a token.
    """

    report_s: float = 0.05
    scrape_s: float = 0.25
    timeout_s: float = 10.0
    silence_s: float = 300.0


@dataclass(slots=True)
class Line:
    """What is under way with one server. ``busy_ns``: so long it had requests of ours, till ``since_ns``."""

    server: Server
    streams: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)
    lost: bool = False
    asleep: bool = False
    heard_ns: int = 0
    since_ns: int = 0
    busy_ns: int = 0
    checking: "asyncio.Task[str | None] | None" = None


@dataclass(slots=True)
class Counts:
    """What really happened. ``short``: answers that ended before they were as long as asked for.

    ``handed_over``: requests whose KV went from one server to another; ``slept``,
    ``woken``: servers that were told to, since the run began.
    """

    moved: int = 0
    resumed: int = 0
    short: int = 0
    observed: int = 0
    handed_over: int = 0
    slept: int = 0
    woken: int = 0
