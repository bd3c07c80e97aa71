"""The world of HTTP servers: actions become requests and aborts; streams and lost servers become facts.

Everything runs in one asyncio loop, in which the driver handles one fact after the other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from realexec.http.dialects import ServerLoad
from realexec.http.handover import Roles, Work, Works
from realexec.http.instance_launcher import InstanceLauncher
from realexec.http.probe import Server, forget, is_alive, page_of
from realexec.http.server_counters import ServerCounters, counters_of
from realexec.http.server_state import HttpCounts, ServerState, Times
from realexec.http.sleep_mode import SleepMode
from realexec.http.started_servers import StartedServers
from realexec.http.stream import Refused
from realexec.world.tracking import Tracker
from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    Assign,
    Fail,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Send,
    StopLoad,
    Wake,
)
from serving.vocabulary.events import Dropped, Event, Lost, Observed, Streamed
from serving.vocabulary.units import NS_PER_S

# Tokens that arrived but are not reported to the controller yet, by the replica that has the request.


@dataclass(slots=True)
class _Unreported:
    """``since_ns``: when the oldest token arrived; ``urgent``: a first token or an end is included."""

    tokens: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    since_ns: int = 0
    urgent: bool = False


class Pending:
    """First tokens and ends are reported at once, all other tokens together once per ``period_ns``."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._of: dict[int, _Unreported] = {}

    def add(self, replica: int, request: int, tokens: int, first: bool, now_ns: int) -> None:
        """Add tokens of a request that have arrived."""
        unreported = self._of.get(replica)
        if unreported is None:
            unreported = self._of[replica] = _Unreported(since_ns=now_ns)
        unreported.tokens[request] = unreported.tokens.get(request, 0) + tokens
        unreported.urgent |= first

    def finish(self, replica: int, request: int, now_ns: int) -> None:
        """Record that a request's last token has arrived."""
        self.add(replica, request, 0, True, now_ns)
        self._of[replica].finished.add(request)

    def move(self, request: int, source: int, target: int, now_ns: int) -> bool:
        """Move a request that the controller has moved; return whether it has in fact finished."""
        unreported = self._of.get(source)
        if unreported is None or request not in unreported.tokens:
            return False
        tokens, over = unreported.tokens.pop(request), request in unreported.finished
        unreported.finished.discard(request)
        self.add(target, request, tokens, over, now_ns)
        if over:
            self._of[target].finished.add(request)
        return over

    def forget(self, replica: int, request: int) -> None:
        """Drop a request that the controller has given up."""
        unreported = self._of.get(replica)
        if unreported is not None:
            unreported.tokens.pop(request, None)
            unreported.finished.discard(request)

    def due_ns(self) -> int | None:
        """Return when the next report is due; None if there is nothing to report."""
        due_ns = [
            0 if unreported.urgent else unreported.since_ns + self._period_ns
            for unreported in self._of.values()
        ]
        return min(due_ns, default=None)

    def take(self, now_ns: int) -> Streamed | None:
        """Return a report that is due by now, of one replica; None if none is."""
        for replica, unreported in sorted(self._of.items()):
            if unreported.urgent or unreported.since_ns + self._period_ns <= now_ns:
                return self.flush(replica)
        return None

    def flush(self, replica: int) -> Streamed | None:
        """Return the report of a replica, due or not."""
        unreported = self._of.pop(replica, None)
        if unreported is None or not unreported.tokens:
            return None
        return Streamed(replica, tuple(sorted(unreported.tokens.items())), tuple(sorted(unreported.finished)))

    def __len__(self) -> int:
        return sum(len(unreported.tokens) for unreported in self._of.values())


# Checks whether a server still serves.

# A server that does not answer is checked a second time before it counts as lost.
HEALTH_TRIES: Final = 2


async def why_dead(state: ServerState, timeout_s: float) -> str | None:
    """Return why a server no longer serves; None if it serves. Concurrent callers share one check."""
    if state.checking is None:
        state.checking = asyncio.create_task(_asked(state.server, timeout_s))
        state.checking.add_done_callback(lambda _: setattr(state, "checking", None))
    return await asyncio.shield(state.checking)


async def _asked(server: Server, timeout_s: float) -> str | None:
    cause = None
    for _ in range(HEALTH_TRIES):
        cause = await is_alive(server, timeout_s)
        if cause is None:
            return None
    return cause


class HttpWorld:
    """``facts``: to report, oldest first. ``wake_ns``: when `Woke` is due. ``news``: set when facts come."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        tracker: Tracker,
        times: Times,
        clock: Callable[[], int],
        roles: Roles | None = None,
        launcher: InstanceLauncher | None = None,
    ) -> None:
        self.states = [ServerState(server=server) for server in servers]
        self._launcher = launcher
        self.instances: SleepMode | StartedServers = SleepMode(self.states, times.timeout_s, self._tell)
        if launcher is not None:
            self.instances = StartedServers(
                self.states, launcher, tell=self._tell, serves=self._serves, fault=self._fail_run
            )
        self._works = Works(self.states, tracker, roles or Roles())
        self.tracker, self._times, self._now_ns = tracker, times, clock
        self.facts: deque[Event] = deque()
        self.pending = Pending(round(times.report_s * NS_PER_S))
        self.wake_ns: int | None = None
        self.news = asyncio.Event()
        self.counts = HttpCounts()
        self.counters: ServerCounters | None = None  # None: nobody asks what servers count
        self.lost: list[tuple[int, str]] = []
        self.fault: Exception | None = None  # an error of this program in a task; the driver raises it
        self._owner: dict[int, int] = {}
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            Assign: self._assign,
            Reject: self._reject,
            Fail: self._fail,
            Preempt: self._preempt,
            Migrate: self._migrated,
            Send: self._send,
            Wake: self._wake,
            AllocateGpus: self.instances.allocate,
            Load: self.instances.load,
            StopLoad: self.instances.stop,
            ReleaseGpus: self.instances.release,
        }

    def carry_out(self, action: Action) -> None:
        """Begin to carry out an action."""
        self._handlers[type(action)](action)

    @property
    def under_way(self) -> bool:
        """Whether a stream is open, a server wakes, or facts or tokens are still to be received."""
        open_streams = any(state.streams for state in self.states)
        return bool(self.facts or len(self.pending) or open_streams or self.instances.loading)

    @property
    def may_start(self) -> bool:
        """Whether a server is left that could serve, or can be started."""
        return self._launcher is not None or not all(state.lost for state in self.states)

    # Actions.

    def _assign(self, action: Assign) -> None:
        request, target = action.request, action.replica
        before = self._owner.get(request, target)
        self._owner[request] = target
        if self.pending.move(request, before, target, self._now_ns()):
            self.news.set()
            return  # it had finished, which the controller did not know yet
        if self.tracker.generated(request):
            self.counts.resumed += 1
            self.tracker.assign(request)
        state = self.states[target]
        if state.lost:
            return  # the controller is about to receive `Lost`, and assigns it elsewhere
        work = self._works.assigned(request, target)
        if work is not None:
            self._open(request, target, work)

    def _send(self, action: Send) -> None:
        (request,) = action.requests
        self._owner[request] = action.target
        work = self._works.sent(action)
        if self.states[action.target].lost:
            self._tell(self._works.ended(request, action.target, "the server is lost"))
        else:
            self._open(request, action.target, work)

    def _open(self, request: int, replica: int, work: Work) -> None:
        state = self.states[replica]
        if not state.streams:
            state.since_ns = state.heard_ns = self._now_ns()
        state.streams[request] = asyncio.create_task(self._stream(request, replica, work))

    def _tell(self, fact: Event | None) -> None:
        if fact is not None:
            self.facts.append(fact)
            self.news.set()

    def _preempt(self, action: Preempt) -> None:
        self._end(action.replica, action.request, True)

    def _reject(self, action: Reject) -> None:
        self.tracker.refuse(action.request, self._now_ns(), action.reason)

    def _fail(self, action: Fail) -> None:
        owner = self._owner.pop(action.request, None)
        if owner is not None:
            self._end(owner, action.request, True)
            self.pending.forget(owner, action.request)
        self.tracker.fail(action.request, self._now_ns(), action.reason)

    def _migrated(self, action: Migrate) -> None:
        self.counts.moved += 1

    def _wake(self, action: Wake) -> None:
        self.wake_ns = action.at_ns

    def _end(self, replica: int, request: int, abort: bool) -> None:
        """Close a request's stream at a replica. ``abort``: also cancel the task that reads it."""
        state = self.states[replica]
        task = state.streams.pop(request, None)
        if task is None:
            return
        self._tell(self._works.ended(request, replica, "it ended before its first token"))
        if not state.streams:
            state.busy_ns += self._now_ns() - state.since_ns
        if abort:
            task.cancel()

    # Streams.

    async def _stream(self, request: int, replica: int, work: Work) -> None:
        wish, server = work.wish, self.states[replica].server
        try:
            got = 0
            async with aclosing(work.chunks) as chunks:
                async for chunk in chunks:
                    tokens = chunk.tokens[: wish.max_tokens - got]
                    self._came(request)
                    new = tokens[max(0, work.repeats - got) :]
                    self._got(request, replica, new, got <= work.repeats)
                    got += len(tokens)
                    if got == wish.max_tokens:
                        break
            if not work.ends:
                self._end(replica, request, False)
                return
            self.counts.short += got < wish.max_tokens
            self._finish(request, replica)
        except asyncio.CancelledError:
            await self._forget(server, wish.label)
            raise
        except (Refused, OSError) as error:
            if not await self._is_cut_off(request):
                await self._failed(request, replica, error)
        except Exception as error:
            self._fail_run(error)

    async def _is_cut_off(self, request: int) -> bool:
        """Whether the server that prefilled it is lost: then the controller gets `Lost` and reassigns it."""
        action = self._works.on_the_way.get(request)
        if action is None:
            return False
        source = self.states[action.source]
        if not source.lost and (dead := await self._check(action.source)) is not None:
            self.lose(action.source, dead)
        return source.lost

    async def _failed(self, request: int, replica: int, error: Refused | OSError) -> None:
        cause = str(error) or type(error).__name__
        if isinstance(error, OSError):
            await self._broke(request, replica, cause)
        else:  # if its KV did not arrive, the request does not count as refused: the prompt is computed again
            self._dropped(request, replica, request not in self._works.on_the_way, cause)

    async def _forget(self, server: Server, label: str) -> None:
        with suppress(OSError):  # the stream's connection is closed already; nothing else can be done
            await forget(server, label, self._times.timeout_s)

    def _got(self, request: int, replica: int, tokens: Sequence[int], first: bool) -> None:
        now_ns = self._now_ns()
        self.states[replica].heard_ns = now_ns
        if not tokens:
            return
        self.tracker.got(request, tokens, now_ns)
        self.pending.add(replica, request, len(tokens), first, now_ns)
        self.news.set()

    def _came(self, request: int) -> None:
        told = self._works.came(request)
        self.counts.handed_over += told is not None
        self._tell(told)

    def _finish(self, request: int, replica: int) -> None:
        self._end(replica, request, False)
        self.tracker.finish(request, replica)
        self.pending.finish(replica, request, self._now_ns())
        self.news.set()

    def _dropped(self, request: int, replica: int, refused: bool, cause: str) -> None:
        self._end(replica, request, False)
        flushed = self.pending.flush(replica)
        self.facts += [*([flushed] if flushed else []), Dropped(replica, request, refused, cause)]
        self.news.set()

    async def _broke(self, request: int, replica: int, cause: str) -> None:
        """Find out whether the server has ended or only this connection, and report it."""
        dead = await self._check(replica)
        if dead is not None:
            self.lose(replica, f"{cause}; {dead}")
        elif not self.states[replica].lost:
            self._dropped(request, replica, False, cause)

    # Servers.

    async def _check(self, replica: int) -> str | None:
        server = self.states[replica].server
        dead = await why_dead(self.states[replica], self._times.timeout_s)
        if self.states[replica].server is not server:
            return None  # another has started meanwhile
        if dead is None or self._launcher is None:
            return dead
        return await self._launcher.why_ended(replica) or dead

    def lose(self, replica: int, cause: str) -> None:
        """Mark a server as lost and end its streams. Tokens that came before are reported first."""
        state = self.states[replica]
        if state.lost:
            return
        state.lost = True
        current = asyncio.current_task()
        for request, task in list(state.streams.items()):
            self._end(replica, request, task is not current)
        flushed = self.pending.flush(replica)
        self.facts += [*([flushed] if flushed else []), Lost(replica, cause)]
        self.lost.append((replica, cause))
        if isinstance(self.instances, StartedServers):
            self.instances.end(replica)  # it may hang and still have its memory
        self.news.set()

    def watch(self) -> None:
        """Start to check every server once per ``scrape_s``."""
        for replica, state in enumerate(self.states):
            if self._launcher is None or not state.asleep:
                self._watches[replica] = asyncio.create_task(self._watched(replica))

    def _serves(self, replica: int) -> None:
        """A server was started: check it from now on."""
        if self.counters is not None:
            self.counters.restarted(replica)
        self._watches[replica] = asyncio.create_task(self._watched(replica))

    def _fail_run(self, error: Exception) -> None:
        self.fault = error
        self.news.set()

    async def _watched(self, replica: int) -> None:
        try:
            await self._watch(replica)
        except Exception as error:
            self._fail_run(error)

    async def _watch(self, replica: int) -> None:
        state, times = self.states[replica], self._times
        server = state.server
        while not state.lost and state.server is server and not (self._launcher and state.asleep):
            asked_ns = self._now_ns()
            try:
                if state.server.tells_load and not state.asleep:
                    await self._read(replica, asked_ns)
                elif await self._check(replica) is not None:
                    raise ConnectionError("it does not answer")
            except OSError as error:
                dead = await self._check(replica)
                if dead is not None:
                    self.lose(replica, f"{str(error) or type(error).__name__}; {dead}")
            silent_ns = self._now_ns() - state.heard_ns
            if state.streams and silent_ns > times.silence_s * NS_PER_S:
                self.lose(replica, f"no token came for {times.silence_s:g} s")
            await asyncio.sleep(times.scrape_s)

    async def read_all(self) -> None:
        """Read what all servers have counted before the run begins. Raises OSError."""
        for replica, state in enumerate(self.states):
            if self.counters is not None and state.server.tells_load and not state.asleep:
                page = await page_of(state.server, self._times.timeout_s)
                self.counters.add(replica, 0, counters_of(state.server.dialect.name, page))

    async def _read(self, replica: int, asked_ns: int) -> None:
        state = self.states[replica]
        server = state.server
        page = await page_of(server, self._times.timeout_s)
        load = server.dialect.load(page)
        if load is None or state.lost or state.asleep or state.server is not server:
            return
        self._observed(replica, load, asked_ns)
        if self.counters is not None:
            self.counters.add(replica, asked_ns, counters_of(server.dialect.name, page))

    def _observed(self, replica: int, load: ServerLoad, asked_ns: int) -> None:
        server, share = self.states[replica].server, load.used_share
        block = load.block_tokens or server.block_tokens or 1
        total = load.total_blocks or (server.kv_tokens or 0) // block
        if share is None:  # it says nothing of its memory: what the controller has in its books counts
            total = 0
        used = min(total, round((share or 0.0) * total))
        self.facts.append(
            Observed(
                replica=replica,
                as_of_ns=asked_ns,
                running=load.running,
                waiting=load.waiting,
                used_blocks=used,
                total_blocks=total,
                block_tokens=block,
                preemptions=load.preemptions,
                queried_tokens=load.queried,
                found_tokens=load.found,
            )
        )
        self.counts.observed += 1
        self.news.set()

    async def close(self) -> None:
        """End all streams and checks, and wake sleeping servers."""
        for replica, state in enumerate(self.states):
            for request in list(state.streams):
                self._end(replica, request, True)
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)
        await self.instances.close()
        self.counts.slept, self.counts.woken = self.instances.slept, self.instances.woken

    def busy_ns(self) -> dict[int, int]:
        """Return for how many ns each server had requests of this run."""
        now_ns = self._now_ns()
        more = [now_ns - state.since_ns if state.streams else 0 for state in self.states]
        return {replica: state.busy_ns + more[replica] for replica, state in enumerate(self.states)}
