"""Clients that give up: each closes its connection if it has not got its last token in time.

All wait equally long, so their deadlines pass in the order in which they sent: a queue and one timer are
enough. A client that gave up may send its request again; that is another request, numbered ``requests``
higher, so its number says which request it repeats and how often. The recorder gets the first one's number.
Requests come in through a front end, if there is one: one whose client gives up on the way in never gets to
the controller. An answer that reaches its client too late is computed in vain.

Same-time order: deadlines, then what clients send, then arrivals and all else.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Protocol

from simpy import Environment

from serving.vocabulary.actions import Abort
from serving.vocabulary.closed_loop import ClosedLoop, Door, Requests
from serving.vocabulary.events import Arrived, Disconnected, Event
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from simcore.replica.lifetime import Lifetime
from simcore.timers import Timer

DEADLINE_RANK: Final = -2
SENDING_RANK: Final = -1
ARRIVAL_RANK: Final = 1
Sending = tuple[Request, int]  # its arrival is when it is sent; true output tokens


class TimeoutRecorder(Recorder, Protocol):
    """A recorder that also counts clients who have given up."""

    def timed_out(self, request: Request, now_ns: int, reason: str) -> None:
        """The client of a request has given up and does not send it again."""

    def ended_in_vain(self, now_ns: int) -> None:
        """The work for a client that had gone away has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """``timeout_ns``: from sending to giving up. A request is sent again ``retries`` times, each ``wait_ns``
    after its client gave up.

    ``requests``: the number of the trace's requests. ``door``: the front end of an open loop or of clients
    that wait for their answers; None: none. ``finds_prompts``: prefix caching finds the prompt of an earlier
    attempt.
    """

    timeout_ns: int
    retries: int
    wait_ns: int
    requests: int
    door: Door | None = None
    finds_prompts: bool = False


@dataclass(slots=True, kw_only=True)
class TimeoutCounts:
    """``time_outs``: of all attempts, ``on_the_way``: of these, before the engines had the request.

    ``too_late``: of these, with an answer on its way to the client. ``wasted_tokens``: of prompts and outputs
    that were computed for attempts whose client gave up.
    """

    time_outs: int = 0
    retries: int = 0
    given_up: int = 0
    on_the_way: int = 0
    too_late: int = 0
    wasted_tokens: int = 0


class ClientTimeouts:
    """Sends the requests and waits for their ends: it stands between the world and its ``recorder``."""

    def __init__(
        self,
        plan: ClientPlan,
        requests: Requests,
        *,
        lives: dict[int, Lifetime],
        recorder: TimeoutRecorder,
        env: Environment,
        tell: Callable[[int, Event], None],
    ) -> None:
        """``requests``: of a closed loop without a door. ``lives``: the requests that have arrived."""
        self._plan, self._lives, self._recorder, self._tell = plan, lives, recorder, tell
        self._loop = requests if isinstance(requests, ClosedLoop) else None
        none: Iterator[Sending] = iter(())
        self._trace = none if isinstance(requests, ClosedLoop) else iter(requests)
        self._next: Sending | None = None  # of the trace or the loop
        self._again: deque[Sending] = deque()
        self._coming: list[tuple[int, int, Request, int]] = []  # a heap: (arrival, order, request, output)
        self._deadlines: deque[tuple[int, Request, int]] = deque()
        self._waiting: dict[int, int] = {}  # requests with a client that waits: its deadline
        self._leaving: set[int] = set()  # requests without a client that the world still has
        self._sent = self._last_arrival_ns = 0
        self.counts = TimeoutCounts()
        self.first_sent_ns: dict[int, int] = {}  # of requests that were sent again
        self.attempts: dict[int, int] = {}  # of answered ones: how often they were sent again
        self.gaps, self.busy = recorder.gaps, recorder.busy  # saves one call on the hot path
        self._sending_timer = Timer(env, SENDING_RANK, self._send_due)
        self._deadline_timer = Timer(env, DEADLINE_RANK, self._expire)
        self._arrival_timer = Timer(env, ARRIVAL_RANK, self._arrive)

    @property
    def goes_on(self) -> bool:
        """Whether a request is still to be sent, or a client waits."""
        return self._next is not None or bool(self._again) or bool(self._waiting)

    # Sending.

    def look(self) -> None:
        """Schedule what is sent next; a client of the loop may have become free."""
        loop = self._loop
        if self._next is None:
            self._next = next(self._trace, None) if loop is None else loop.take()
        elif loop is not None and loop.is_sooner(self._next):
            self._next = loop.take()
        soonest = self._soonest()
        if soonest is not None:
            self._sending_timer.at(soonest[0].arrival_ns)

    def _soonest(self) -> Sending | None:
        """What is sent next; at the same time the trace's requests go first."""
        return self._again[0] if self._again_is_next() else self._next

    def _again_is_next(self) -> bool:
        if not self._again:
            return False
        return self._next is None or self._again[0][0].arrival_ns < self._next[0].arrival_ns

    def _send_due(self, now_ns: int) -> None:
        while (sending := self._soonest()) is not None and sending[0].arrival_ns <= now_ns:
            if self._again_is_next():
                self._again.popleft()
            else:
                self._next = None
            self._send(now_ns, *sending)
            self.look()
        self.look()

    def _send(self, now_ns: int, request: Request, output_tokens: int) -> None:
        """A client sends: the request comes in, and the client waits."""
        door, order = self._plan.door, request.id
        if door is not None:
            arrival_ns = door.enter(self._first(request), now_ns)
            if self._loop is not None:  # as ``ClosedLoop`` has it, no request overtakes another
                arrival_ns, order = max(arrival_ns, self._last_arrival_ns), self._sent
            self._last_arrival_ns, self._sent = arrival_ns, self._sent + 1
            request = replace(request, arrival_ns=arrival_ns)
        heappush(self._coming, (request.arrival_ns, order, request, output_tokens))
        self._arrival_timer.at(self._coming[0][0])
        self._waiting[request.id] = deadline_ns = now_ns + self._plan.timeout_ns
        self._deadlines.append((deadline_ns, request, output_tokens))
        self._deadline_timer.at(self._deadlines[0][0])

    def _arrive(self, now_ns: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= now_ns:
            _, _, request, output_tokens = heappop(coming)
            if request.id not in self._waiting:
                continue  # nobody waits for it any more
            cap = request.max_new_tokens
            self._lives[request.id] = Lifetime(request, output_tokens if output_tokens < cap else cap)
            self._tell(now_ns, Arrived(request))
        if coming:
            self._arrival_timer.at(coming[0][0])

    # Giving up.

    def _expire(self, now_ns: int) -> None:
        """Clients whose deadline has come give up; of others the earliest deadline is waited for."""
        deadlines, waiting = self._deadlines, self._waiting
        while deadlines and (deadlines[0][0] <= now_ns or deadlines[0][1].id not in waiting):
            _, request, output_tokens = deadlines.popleft()
            if request.id in waiting:
                self._give_up(now_ns, request, output_tokens)
        if deadlines:
            self._deadline_timer.at(deadlines[0][0])

    def _give_up(self, now_ns: int, request: Request, output_tokens: int) -> None:
        plan, counts = self._plan, self.counts
        del self._waiting[request.id]
        counts.time_outs += 1
        if request.id in self._lives:
            self._leaving.add(request.id)
            self._tell(now_ns, Disconnected(request.id))
        elif request.arrival_ns >= now_ns:
            counts.on_the_way += 1
        else:
            counts.too_late += 1
        if request.id // plan.requests < plan.retries:
            counts.retries += 1
            self.first_sent_ns.setdefault(request.id % plan.requests, now_ns - plan.timeout_ns)
            self._again.append((self._attempt_after(request, now_ns), output_tokens))
        else:
            counts.given_up += 1
            self._recorder.timed_out(
                self._first(request), now_ns, f"no last token within {plan.timeout_ns / 1e9:g} s"
            )
            self._free(now_ns)
        self.look()

    def _attempt_after(self, request: Request, now_ns: int) -> Request:
        """The same request once more."""
        plan, parts = self._plan, request.shared_prefix
        if plan.finds_prompts and (not parts or parts[-1][1] < request.prompt_tokens):
            parts = (*parts, (request.id % plan.requests, request.prompt_tokens))
        number = request.id + plan.requests
        return replace(request, id=number, arrival_ns=now_ns + plan.wait_ns, shared_prefix=parts)

    def _first(self, request: Request) -> Request:
        """The request under the number of its first attempt, which results have."""
        requests = self._plan.requests
        return request if request.id < requests else replace(request, id=request.id % requests)

    def _free(self, now_ns: int) -> None:
        """A client of the loop is through with its request."""
        if self._loop is not None:
            self._loop.freed(now_ns)

    # Ends of requests in the world.

    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """A request has all its tokens: its client has them in time, later, or has left."""
        got_ns = finish_ns + self._way_out_ns()
        if request.id in self._leaving or got_ns >= self._waiting[request.id]:
            self._leaving.discard(request.id)
            self.counts.wasted_tokens += request.prompt_tokens + output_tokens
            self._recorder.ended_in_vain(finish_ns)
            return
        del self._waiting[request.id]
        first = self._first(request)
        if first is not request:
            self.attempts[first.id] = request.id // self._plan.requests
        self._recorder.finished(first, output_tokens, first_token_ns, finish_ns, replica, preemptions)
        self._free(got_ns)
        self.look()

    def _way_out_ns(self) -> int:
        """How long a token takes to its client now."""
        return 0 if self._plan.door is None else self._plan.door.way_out_ns(len(self._lives) + 1)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """A request was rejected; its client does not send it again."""
        self._recorder.refused(self._first(request), now_ns, reason)
        self._ended(request, now_ns)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """A request was lost; its client, if it has not left, does not send it again."""
        if request.id in self._leaving:
            self._leaving.remove(request.id)
            self._recorder.ended_in_vain(now_ns)
            return
        self._recorder.failed(self._first(request), now_ns, reason)
        self._ended(request, now_ns)

    def _ended(self, request: Request, now_ns: int) -> None:
        del self._waiting[request.id]
        self._free(now_ns + self._way_out_ns())
        self.look()

    def aborted(self, now_ns: int, action: Abort) -> None:
        """The world has dropped a request whose client left."""
        self._recorder.ended_in_vain(now_ns)
        self._leaving.remove(action.request)
        self.counts.wasted_tokens += action.tokens
