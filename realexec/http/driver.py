"""The driver of stock engines: the same controller, requests to servers over HTTP, the wall clock.

As with worker processes, the controller receives facts one at a time, in the order in which the driver takes
them. The time of a fact is the moment at which the driver takes it. The driver makes no decisions.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from realexec.http.capabilities import carries_out
from realexec.http.client import address_of
from realexec.http.handover import Roles
from realexec.http.lines import Counts, Times
from realexec.http.pair_probe import probe_pairs
from realexec.http.probe import Server, probe
from realexec.http.sleeping import probe_sleep
from realexec.http.world import HttpWorld
from realexec.world.arrivals import Arrivals
from realexec.world.due import Due
from realexec.world.report import CpuTime, Moved, RunReport
from realexec.world.tracking import Tracker
from serving.vocabulary.closed_loop import Requests
from serving.vocabulary.driver import Control, JournalSink
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event, Opened
from serving.vocabulary.masked import Masked
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import NS_PER_S

# After this many facts without a pause, the driver lets the loop read the streams.
_FACTS_AT_ONCE: Final = 16
PROBE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class HttpReport:
    """``run``: as for workers; ``counts``: moved and resumed requests, ...; ``servers``: as probed."""

    run: RunReport
    counts: Counts
    servers: tuple[Server, ...]


def probe_all(addresses: Sequence[str], model: str | None, key: str | None = None) -> tuple[Server, ...]:
    """Probe all servers at the same time. Raises UserError."""
    found = [address_of(text) for text in addresses]
    if len(set(found)) < len(found):
        raise UserError(f"http.servers={addresses} names a server twice: write each once")

    async def ask_all() -> list[Server]:
        return await asyncio.gather(*[probe(one, model, key, PROBE_TIMEOUT_S) for one in found])

    return tuple(asyncio.run(ask_all()))


def probe_hand_overs(servers: Sequence[Server], roles: Roles) -> tuple[Server, ...]:
    """Try whether KV gets from servers that prefill to servers that decode. Raises UserError."""
    return asyncio.run(probe_pairs(servers, roles, PROBE_TIMEOUT_S))


def probe_sleeps(servers: Sequence[Server]) -> None:
    """Try whether every server sleeps and wakes. Raises UserError."""
    asyncio.run(probe_sleep(servers, PROBE_TIMEOUT_S))


def resumes(servers: Iterable[Server]) -> bool:
    """Whether a request can resume at another server with the tokens it has."""
    return all(one.token_ids and one.aborts for one in servers)


def execute(
    controller: Control,
    requests: Requests,
    servers: Sequence[Server],
    vocab_size: int,
    seed: int,
    recorder: Recorder,
    journal: JournalSink | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    times: Times | None = None,
    opens: bool = False,
    roles: Roles | None = None,
    awake: Sequence[int] | None = None,
) -> HttpReport:
    """Run ``requests``, (request, true output tokens) by arrival or of clients, on ``servers``.

    Replica n is server n. ``opens``: the controller works in rounds, and receives `Opened` at the start.
    ``roles``: which servers prefill and which decode; None: each does both.
    ``awake``: the replicas that serve from the beginning, if servers sleep and wake; None: all stay awake.
    Raises UserError for what a user can correct, RuntimeError if the controller leaves requests unserved.
    """
    arrivals = Arrivals(requests, seed, vocab_size)
    masked = Masked(
        controller,
        carries_out(resumes(servers), roles is not None, awake is not None),
        "a server that gives no token ids back or does not abort",
        "write system/migration=none",
    )
    tracker = Tracker(recorder, len(servers))
    return asyncio.run(
        _Run(masked, tracker, servers, times or Times(), journal, on_progress, roles).run(
            arrivals, opens, awake
        )
    )


class _Run:
    """The state of one run, used in one asyncio loop."""

    def __init__(
        self,
        controller: Control,
        tracker: Tracker,
        servers: Sequence[Server],
        times: Times,
        journal: JournalSink | None,
        on_progress: Callable[[int, int], None] | None,
        roles: Roles | None,
    ) -> None:
        self._controller, self._tracker, self._servers = controller, tracker, tuple(servers)
        self._journal, self._on_progress = journal, on_progress
        self._decide_ns = array("q")
        self._start_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._world = HttpWorld(servers, tracker, times, self._now_ns, roles)

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._start_ns

    async def run(self, arrivals: Arrivals, opens: bool, awake: Sequence[int] | None) -> HttpReport:
        """Run until the last request has ended."""
        if awake is not None:
            await self._world.sleep_mode.open(awake)
        self._start_ns = time.monotonic_ns()
        due = Due(arrivals, self._tracker, self._world)
        if opens:
            self._handle(Opened())
        self._world.watch()
        try:
            await self._loop(due)
        finally:
            busy = self._world.busy_ns()
            await self._world.close()
        for replica, busy_ns in busy.items():
            self._tracker.computed(replica, busy_ns)
        self._tracker.close()
        return self._report(due)

    async def _loop(self, due: Due) -> None:
        handled = 0
        while due.has_arrivals or self._tracker.unfinished or len(self._world.pending):
            event = self._next(due)
            if self._world.fault is not None:
                raise self._world.fault
            if event is None:
                self._refuse_stall(due)
                await self._wait(due)
                handled = 0
                continue
            self._handle(event)
            due.handled(self._now_ns())
            handled += 1
            if handled % _FACTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._on_progress is not None:
                self._on_progress(self._tracker.ended, self._tracker.arrived)

    def _next(self, due: Due) -> Event | None:
        """Return the next event that is due: facts of servers first, then tokens, then timed events."""
        world, now_ns = self._world, self._now_ns()
        if world.facts:
            return world.facts.popleft()
        told = world.pending.take(now_ns)
        return due.take(now_ns) if told is None else told

    async def _wait(self, due: Due) -> None:
        """Wait for news, or until the next event is due."""
        world = self._world
        told_ns = world.pending.due_ns()
        times_ns = due.times_ns() + ([] if told_ns is None else [told_ns])
        world.news.clear()
        if world.facts:
            return
        wait_s = max(0, min(times_ns) - self._now_ns()) / NS_PER_S if times_ns else None
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await world.news.wait()

    def _refuse_stall(self, due: Due) -> None:
        if not due.has_arrivals and not self._world.under_way and self._tracker.unfinished:
            raise RuntimeError(
                f"the controller left {self._tracker.unfinished} requests unserved: no stream is open and "
                "nothing more will arrive"
            )

    def _handle(self, event: Event) -> None:
        now_ns = self._now_ns()
        began_ns = time.perf_counter_ns()
        actions = self._controller.handle(now_ns, event)
        self._decide_ns.append(time.perf_counter_ns() - began_ns)
        if self._journal is not None:
            self._journal.write(now_ns, event, actions)
        for action in actions:
            self._world.carry_out(action)

    def _report(self, due: Due) -> HttpReport:
        tracker, counts = self._tracker, self._world.counts
        run = RunReport(
            wall_s=self._now_ns() / NS_PER_S,
            start_s=0.0,
            arrived=tracker.arrived,
            refused=tracker.refused,
            failed=tracker.failed,
            preemptions=tracker.preemptions,
            lost=tuple(self._world.lost),
            generations=tracker.generations,
            decide_ns=self._decide_ns,
            lateness_ns=due.lateness_ns,
            moved=Moved(migrations=counts.moved),
            cpu=CpuTime(driver_ns=time.process_time_ns() - self._cpu_ns),
        )
        return HttpReport(run, counts, self._servers)
