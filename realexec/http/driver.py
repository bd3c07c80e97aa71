"""The driver of stock engines: the same controller, requests to servers over HTTP, the wall clock.

As with worker processes, the controller receives facts one at a time, in the order in which the driver takes
them. The time of a fact is the moment at which the driver takes it. The driver makes no decisions.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Final

from realexec.http.capabilities import carries_out
from realexec.http.client import address_of
from realexec.http.connectors import computed, prefill_body
from realexec.http.dialects import DIALECTS, UNKNOWN_TOKEN, Wish
from realexec.http.handover import Chunks, Roles, met
from realexec.http.instance_launcher import InstanceLauncher
from realexec.http.probe import Server, load_of, probe
from realexec.http.server_counters import ServerCounters
from realexec.http.server_state import HttpCounts, Times
from realexec.http.sleeping import probe_sleep
from realexec.http.stream import Refused, answer_of, tokens_of
from realexec.http.world import HttpWorld
from realexec.world.arrivals import Arrivals
from realexec.world.due import Due
from realexec.world.report import CpuTime, Moved, RunReport
from realexec.world.reported import Reported
from realexec.world.tracking import Tracker
from serving.vocabulary.action_mask import Masked
from serving.vocabulary.closed_loop import Requests
from serving.vocabulary.driver import Control, JournalSink
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Closing, Event, Opened, Woke
from serving.vocabulary.measured import Measured
from serving.vocabulary.measured_requests import MeasuredRequests
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.step_counts import register
from serving.vocabulary.units import NS_PER_S

# Tries before a run whether KV gets from servers that prefill to servers that decode.

_TOKENS: Final = 3
_BLOCK_TOKENS: Final = 16  # assumed for a server that does not report its block size
_NIXL: Final = '\'{"kv_connector":"NixlConnector","kv_role":"kv_both"}\''


async def probe_pairs(servers: Sequence[Server], roles: Roles, timeout_s: float) -> tuple[Server, ...]:
    """Return the servers with what the probe found. Raises UserError if KV does not get across."""
    prefills = sorted(roles.prefills)
    decodes = [place for place in range(len(servers)) if place not in roles.prefills]
    for place in prefills:
        _check_kind(servers[place], "prefill", roles)
    for place in decodes:
        _check_kind(servers[place], "decode", roles)
    probed = list(servers)
    for turn in range(max(len(prefills), len(decodes))):
        source, target = prefills[turn % len(prefills)], decodes[turn % len(decodes)]
        try:
            async with asyncio.timeout(timeout_s):
                ids = await _tried(servers[source], servers[target], roles, timeout_s)
        except (OSError, ValueError, Refused) as error:
            words = str(error) or type(error).__name__
            raise UserError(
                f"KV does not get from the server at {servers[source].address} to {servers[target].address} "
                f"({words}): start them as docs/how-to/HTTP.md says, "
                "or write a system whose instances do both"
            ) from None
        for server in (source, target):
            probed[server] = replace(probed[server], hands_over=True, token_ids=ids)
    return tuple(probed)


def _check_kind(server: Server, role: str, roles: Roles) -> None:
    """Refuse a kind of server that has no connector, and a server that was started for the other role."""
    wanted = DIALECTS["sglang" if roles.together else "vllm"]
    if server.dialect.name != wanted.name:
        raise UserError(
            f"the server at {server.address} is of kind {server.dialect.name}, and only {wanted.name} hands "
            "KV over so: write http.hand_over=after for vllm, together for sglang, or a system whose "
            "instances do both, such as system=vllm"
        )
    if roles.together and server.mode != role:
        raise UserError(
            f"the server at {server.address} is to {role}: start it with --disaggregation-mode {role}, or "
            "write those that prefill first in http.servers"
        )


async def _tried(source: Server, target: Server, roles: Roles, timeout_s: float) -> bool:
    """Whether token ids came back. Raises ValueError if the KV did not arrive, or is not the right one."""
    tokens = (target.block_tokens or _BLOCK_TOKENS) + 1  # some engines send only whole blocks
    wish = Wish(source.model, tuple([1 + number % 8 for number in range(tokens)]), _TOKENS, "servetwin-pair")
    if roles.together:
        found = await _tokens(met(source, target, wish))
        return len(found) == _TOKENS and UNKNOWN_TOKEN not in found
    await _keeps(target, wish)
    prompt = await _keeps(source, wish)
    before = await load_of(target, timeout_s)
    fetch = computed(wish, prompt).fetch
    found = await _tokens(tokens_of(target.address, target.dialect, wish, target.key, fetch))
    after = await load_of(target, timeout_s)
    if found[:1] != list(computed(wish, prompt).first):
        raise ValueError("the two give different first tokens")
    if before and after and after.received is not None and after.received <= (before.received or 0):
        raise ValueError("the second computed the prompt again")
    return True


async def _keeps(server: Server, wish: Wish) -> dict[str, object]:
    """Return the answer of a server that keeps KV for another one. Raises ValueError if it does not."""
    answer = await answer_of(
        server.address, server.dialect.path, prefill_body(server.dialect, wish), server.key
    )
    try:
        computed(wish, answer)
    except ValueError as error:
        raise ValueError(f"{server.address} {error}: start it with --kv-transfer-config {_NIXL}") from None
    return answer


async def _tokens(chunks: Chunks) -> list[int]:
    async with aclosing(chunks):
        return [token async for chunk in chunks for token in chunk.tokens]


# After this many facts without a pause, the driver lets the loop read the streams.
_FACTS_AT_ONCE: Final = 16
PROBE_TIMEOUT_S: Final = 60.0
# After this many looks of the load monitor in a row, with nothing in progress, the run counts as stalled.
IDLE_LOOKS: Final = 1000
NO_SERVER_LEFT: Final = "the remaining servers can serve no request"


@dataclass(frozen=True, slots=True)
class HttpReport:
    """``run``: as for workers; ``counts``: moved and resumed requests, ...; ``servers``: as probed.

    ``gone``: those that do not serve at the end. ``counted``: names of servers' metrics that told the scaler
    what was measured of requests.
    """

    run: RunReport
    counts: HttpCounts
    servers: tuple[Server, ...]
    gone: frozenset[int] = frozenset()
    counted: tuple[str, ...] = ()


def probe_all(addresses: Sequence[str], model: str | None, key: str | None = None) -> tuple[Server, ...]:
    """Probe all servers at the same time. Raises UserError."""
    parsed = [address_of(text) for text in addresses]
    if len(set(parsed)) < len(parsed):
        raise UserError(f"http.servers={addresses} names a server twice: write each once")

    async def ask_all() -> list[Server]:
        return await asyncio.gather(
            *[probe(text_address, model, key, PROBE_TIMEOUT_S) for text_address in parsed]
        )

    return tuple(asyncio.run(ask_all()))


def probe_hand_overs(servers: Sequence[Server], roles: Roles) -> tuple[Server, ...]:
    """Try whether KV gets from servers that prefill to servers that decode. Raises UserError."""
    return asyncio.run(probe_pairs(servers, roles, PROBE_TIMEOUT_S))


def probe_sleeps(servers: Sequence[Server]) -> None:
    """Try whether every server sleeps and wakes. Raises UserError."""
    asyncio.run(probe_sleep(servers, PROBE_TIMEOUT_S))


def resumes(servers: Iterable[Server]) -> bool:
    """Whether a request can resume at another server with the tokens it has."""
    return all(server.token_ids and server.aborts for server in servers)


def execute(
    controller: Control,
    requests: Requests,
    servers: Sequence[Server],
    *,
    vocab_size: int,
    seed: int,
    recorder: Recorder,
    journal: JournalSink | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    times: Times | None = None,
    opens: bool = False,
    roles: Roles | None = None,
    awake: Sequence[int] | None = None,
    launcher: InstanceLauncher | None = None,
) -> HttpReport:
    """Run ``requests``, (request, true output tokens) by arrival or of clients, on ``servers``.

    Replica n is server n. ``opens``: the controller works in rounds, and receives `Opened` at the start.
    ``roles``: which servers prefill and which decode; None: each does both.
    ``awake``: the replicas that serve from the beginning, if servers sleep and wake or are started and
    stopped; None: all serve. ``launcher``: starts and stops them; None: they run already.
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
        _HttpRun(
            controller=masked,
            tracker=tracker,
            servers=servers,
            times=times or Times(),
            journal=journal,
            on_progress=on_progress,
            roles=roles,
            launcher=launcher,
        ).run(arrivals, opens, awake)
    )


class _Measures:
    """What servers count of requests, else what the client measured."""

    def __init__(self, own: MeasuredRequests, counters: ServerCounters) -> None:
        self._own, self._counters = own, counters

    def measured(self, model: str, since_ns: int, until_ns: int) -> Measured:
        """See ``serving.vocabulary.step_counts.StepSource``."""
        return self._counters.measured(self._own.measured(model, since_ns, until_ns), since_ns, until_ns)


class _HttpRun:
    """The state of one run, used in one asyncio loop."""

    def __init__(
        self,
        *,
        controller: Control,
        tracker: Tracker,
        servers: Sequence[Server],
        times: Times,
        journal: JournalSink | None,
        on_progress: Callable[[int, int], None] | None,
        roles: Roles | None,
        launcher: InstanceLauncher | None,
    ) -> None:
        self._controller, self._tracker = controller, tracker
        self._journal, self._on_progress, self._launcher = journal, on_progress, launcher
        self._decide_ns = array("q")
        self._start_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._world = HttpWorld(
            servers, tracker=tracker, times=times, clock=self._now_ns, roles=roles, launcher=launcher
        )
        self._counts = register(controller.step_counts, Reported(self._measures()), journal is not None)
        self._closed = False  # whether the controller has received `Closing`
        self._idle_looks = 0

    def _measures(self) -> _Measures | None:
        """What scalers of metrics are told of requests; None if nobody asks."""
        asked = self._controller.step_counts
        if asked is None or not asked.measures:
            return None
        self._world.counters = counters = ServerCounters()
        return _Measures(self._tracker.measures(), counters)

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._start_ns

    async def run(self, arrivals: Arrivals, opens: bool, awake: Sequence[int] | None) -> HttpReport:
        """Run until the last request has ended."""
        if awake is not None and self._launcher is not None:
            await self._world.instances.open(awake)
        await self._world.read_all()
        if awake is not None and self._launcher is None:
            await self._world.instances.open(awake)
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
            if event is None and self._is_stalled(due):
                event = self._closing()
            if event is None:
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
        facts = world.pending.take(now_ns)
        return due.take(now_ns) if facts is None else facts

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

    def _is_stalled(self, due: Due) -> bool:
        """Whether nothing more can happen; looks of the load monitor may still start a server."""
        world = self._world
        if due.has_arrivals or world.under_way or not self._tracker.unfinished:
            return False
        looks = world.wake_ns is not None and self._idle_looks < IDLE_LOOKS
        return not (looks and world.may_start)

    def _closing(self) -> Event:
        """End the run after a loss, as a simulation does; without a loss the controller is at fault."""
        if not self._world.lost or self._closed:
            raise RuntimeError(
                f"the controller left {self._tracker.unfinished} requests unserved: no stream is open and "
                "nothing more will arrive"
            )
        self._closed = True
        return Closing(NO_SERVER_LEFT)

    def _handle(self, event: Event) -> None:
        now_ns = self._now_ns()
        began_ns = time.perf_counter_ns()
        actions = self._controller.handle(now_ns, event)
        self._decide_ns.append(time.perf_counter_ns() - began_ns)
        if self._journal is not None:
            counts = () if self._counts is None else (self._counts.take(),)
            self._journal.write(now_ns, event, actions, *counts)
        for action in actions:
            self._world.carry_out(action)
        self._idle_looks = self._idle_looks + 1 if isinstance(event, Woke) else 0

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
            taken_ns=due.taken_ns,
            moved=Moved(migrations=counts.moved),
            cpu=CpuTime(driver_ns=time.process_time_ns() - self._cpu_ns),
        )
        states, counters = self._world.states, self._world.counters
        gone = [place for place, one in enumerate(states) if one.lost or (self._launcher and one.asleep)]
        return HttpReport(
            run,
            counts,
            servers=tuple([state.server for state in states]),
            gone=frozenset(gone),
            counted=() if counters is None else tuple(counters.names),
        )
