"""Serves a model on stock engines, such as vLLM behind HTTP, which queue, batch and preempt by themselves.

This service chooses the engine of each request (``Assign``) and whether a running request moves to another:
``Preempt`` aborts it at the first, ``Assign`` sends it to the other, which recomputes prompt and tokens so
far. No pass is chosen here, and KV is moved only from engines that prefill to engines that decode
(``stock_handover``). docs/how-to/HTTP.md says what of this a world carries out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, dispatched, refusal
from serving.kv.transfer_ids import TransferIds
from serving.live.scaling import LiveScaling
from serving.live.without_live_scaling import nobody_live
from serving.protocols.migration import Migrator, Pair, chosen_request, paired
from serving.services.rounds import Rounds
from serving.services.stock.handover import HandOverParts, StockHandOvers
from serving.services.stock.requests import StockEngines, StockRequest
from serving.services.stock.views import StockFleet, StockInstances, StockSource
from serving.vocabulary.actions import Action, Assign, Fail, Migrate, Preempt
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Dropped, Observed, Ran, Sent, Streamed
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

# A request whose connection broke this often is assumed to break it.
MOST_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StockParts:
    """Settings of ``Stock``. ``elsewhere``: requests of a lost engine continue at another; else they fail.

    ``starts``: an engine like it that may start; requests then wait while none runs. None: none starts.
    ``elsewhere_after_grace``: requests at an engine that drained for longer than its grace period continue at
    another; else they fail.
    ``migrator``: chooses, once per ``period_ns``, running requests to move to another engine; None: none
    move. ``hand_over``: engines prefill or decode, by their replicas' roles; None: each engine does both.
    """

    elsewhere: bool = True
    migrator: Migrator | None = None
    period_ns: int = 50_000_000
    hand_over: HandOverParts | None = None
    starts: Replica | None = None
    elsewhere_after_grace: bool = True


class Stock:
    """Serves one model. ``moved``: requests moved by policy; ``resumed``: running ones of lost engines.

    ``evicted``: requests whose engine drained for longer than its grace period.
    """

    __slots__ = (
        "_admission", "_context", "_dispatcher", "_live", "_parts", "_present", "_view",
        "_waiting", "evicted", "fleet", "hand_overs", "moved", "resumed", "rounds", "stock",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        *,
        replicas: Sequence[Replica],
        dispatcher: Dispatcher,
        admission: Admission,
        parts: StockParts,
        present: Present,
        transfer_ids: TransferIds,
    ) -> None:
        self._dispatcher, self._admission, self._parts = dispatcher, admission, parts
        described = [*replicas, *([parts.starts] if parts.starts is not None else [])]
        self._context = min(
            [replica.max_model_len for replica in described if replica.max_model_len], default=None
        )
        self._present = present
        self._waiting: dict[int, tuple[StockRequest, str]] = {}  # for an engine to start, each with why
        self.stock = StockEngines(replicas)
        self.fleet = StockFleet(model, replicas, self.stock)
        self._view = StockInstances(self.fleet, self.stock, present, parts.period_ns)
        self.hand_overs: StockHandOvers | None = None
        if parts.hand_over is not None:
            self.hand_overs = StockHandOvers(parts.hand_over, replicas, self.fleet, self.stock, transfer_ids)
        self._live = nobody_live(model, transfer_ids)
        self.rounds: Rounds | None = None
        self.moved = self.resumed = self.evicted = 0

    @property
    def model(self) -> str:
        """The model of these requests."""
        return self.fleet.model

    @property
    def migrates(self) -> bool:
        """Whether running requests may move to another engine once per period."""
        return self._parts.migrator is not None

    # Requests.

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Reason: too long for an engine, no engine left, or rejected by the admission policy."""
        if not self._serves():
            return f"no server of {self.model} is alive"
        reason = too_long(request, self.longest_request_tokens, self._context)
        return reason or refusal(self._admission, now_ns, request, self.fleet)

    def _serves(self) -> bool:
        """Whether the engines that a request needs are left, or may start."""
        if self._parts.starts is not None:
            return True
        return self.fleet.replicas > 0 if self.hand_overs is None else self.hand_overs.serves()

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Send a request to an engine: the dispatcher's choice, or a prefill engine if roles differ."""
        self._send(StockRequest(request, -1), "", actions)

    def _send(self, stock_request: StockRequest, why: str, actions: list[Action]) -> None:
        hand_overs = self.hand_overs
        if self._parts.starts is not None and not self.fleet.replicas:
            self._waiting[stock_request.request.id] = stock_request, why
            return
        if hand_overs is None:
            replica, reason = dispatched(self._dispatcher, stock_request.request, self.fleet)
        else:
            replica, reason = hand_overs.prefill()
        self._assign(stock_request, replica, f"{why}: {reason}" if why else reason, actions)
        if hand_overs is not None and hand_overs.together:
            hand_overs.begin(stock_request, actions)

    def _assign(self, stock_request: StockRequest, replica: int, reason: str, actions: list[Action]) -> None:
        self.fleet.assigned(replica, stock_request.request)
        self.stock.send(stock_request, replica)
        actions.append(Assign(stock_request.request.id, replica, reason))

    def _withdraw(self, request: int) -> StockRequest:
        stock_request = self.stock.take(request)
        self.fleet.departed(stock_request.replica, stock_request.request)
        self._view.moving.pop(request, None)
        if self.hand_overs is not None:
            self.hand_overs.forget(request)
        return stock_request

    def streamed(self, event: Streamed, actions: list[Action]) -> None:
        """Handle streamed tokens."""
        for request, tokens in event.tokens:
            if self.stock.got(event.replica, request, tokens):
                self._view.moving.pop(request, None)
        for request in event.finished:
            self._withdraw(request)
        if self.hand_overs is not None:
            self.hand_overs.streamed(event, actions)

    def observed(self, event: Observed) -> None:
        """Record an engine's report of its state."""
        self.stock.observe(event)

    def dropped(self, event: Dropped, actions: list[Action]) -> bool:
        """An engine refused a request or its connection broke; returns whether the request fails."""
        stock_request = self._withdraw(event.request)
        stock_request.tries += 1
        ends = event.refused or not self._parts.elsewhere or stock_request.tries >= MOST_TRIES
        if ends or not self._serves():
            actions.append(Fail(event.request, event.cause))
            return True
        self._send(stock_request, event.cause, actions)
        return False

    # Moving running requests.

    def look(self, actions: list[Action]) -> None:
        """A period has ended: move the requests that the policy chooses."""
        migrator = self._parts.migrator
        if migrator is None:
            return
        for pair in paired(migrator, self._view):
            self._migrate_request(migrator, pair, actions)

    def _migrate_request(self, migrator: Migrator, pair: Pair, actions: list[Action]) -> None:
        view = StockSource(self.fleet, self.stock, pair.source, pair.destination)
        chosen = chosen_request(migrator, view)
        if chosen is None:
            return
        request, reason = chosen
        stock_request, why = self._withdraw(request), f"{pair.reason}; {reason}"
        actions.append(Preempt(pair.source, request, why))
        self._assign(stock_request, pair.destination, why, actions)
        actions.append(Migrate(request, pair.source, pair.destination, "committed", "it is computed again"))
        self._view.moving[request] = (pair.source, pair.destination)
        self.moved += 1

    def quiet_until_ns(self) -> int:
        """Return 0: unknown, so every period is used."""
        return 0

    # Engines.

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire an engine: it takes no new requests and finishes those it has."""
        self.fleet.retire(replica)

    def evict(self, replica: int, why: str, actions: list[Action]) -> None:
        """Empty an engine that may serve no longer."""
        for request in list(self.stock.own(replica)):
            self._evict(replica, self._withdraw(request), why, actions)

    def _evict(self, replica: int, stock_request: StockRequest, why: str, actions: list[Action]) -> None:
        request = stock_request.request.id
        self.evicted += 1
        if self._parts.elsewhere_after_grace:
            actions.append(Preempt(replica, request, why))
            self._send(stock_request, why, actions)
            return
        actions.append(Fail(request, why))
        self._present.timed_out.append(request)
        self._present.unsettled = True

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Send a lost engine's requests to others, or fail them; returns those that fail."""
        engine.lose(actions, cause)
        withdrawn = [self._withdraw(request) for request in self._of(engine.id, cause, actions)]
        if engine.id in self.fleet.members:  # not a member if it has not woken yet
            self.fleet.lose(engine.id)
        if self.hand_overs is not None:
            withdrawn += [self._withdraw(request) for request in self.hand_overs.stranded()]
        failed, serves = list[int](), self._serves()
        for request in withdrawn:
            if self._parts.elsewhere and serves:
                self.resumed += request.generated > 0
                self._send(request, f"its server is lost ({cause})", actions)
            else:
                actions.append(Fail(request.request.id, cause))
                failed.append(request.request.id)
        return failed

    def _of(self, replica: int, cause: str, actions: list[Action]) -> list[int]:
        """Requests that end with an engine: those at it, and those whose KV is in transfer from it."""
        requests = list(self.stock.own(replica))
        return (
            requests
            if self.hand_overs is None
            else requests + self.hand_overs.cut_off(replica, cause, actions)
        )

    @property
    def running(self) -> int:
        """Number of requests at engines."""
        return len(self.stock.requests)

    # For engines whose passes are chosen here.

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that an engine holds, or one that may start."""
        starts = self._parts.starts
        if starts is not None and not self.fleet.replicas:
            return starts.longest_request_tokens
        return self.fleet.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens of requests without a token yet."""
        waiting = sum([one.known_tokens for one, _ in self._waiting.values()])
        return waiting + sum([own.waiting_tokens for own in self.stock.by_replica.values()])

    @property
    def kv_tokens(self) -> int:
        """The most tokens that the requests at engines may have."""
        return self.stock.kv_tokens

    @property
    def migrating_tokens(self) -> int:
        """Always 0: migrating KV is not counted here."""
        return 0

    @property
    def queued(self) -> int:
        """Requests that wait for an engine to start; others are sent to one at once."""
        return len(self._waiting)

    def queue_head_ns(self) -> int | None:
        """When the first request arrived that waits for an engine to start; None: none waits."""
        return min([one.request.arrival_ns for one, _ in self._waiting.values()], default=None)

    @property
    def live(self) -> LiveScaling:
        """Live scaling without instances: an engine serves once all of its layers are loaded."""
        return self._live

    def kv_senders(self) -> Collection[int]:
        """Return no instances."""
        return ()

    def feed(self, actions: list[Action]) -> None:
        """Do nothing: no request waits here."""

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Not expected: engines run passes by themselves."""
        raise AssertionError(f"replica {engine.id} runs by itself and reports no passes")

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A hand-over's KV has arrived, or its transfer has failed."""
        assert self.hand_overs is not None, f"transfer {event.transfer} is none of {self.model}"
        self.hand_overs.sent(event)
        return None

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """An engine is awake, or takes requests again before it went to sleep."""
        self.stock.join(replica)
        self.fleet.add(replica)
        waiting, self._waiting = list(self._waiting.values()), {}
        for stock_request, why in waiting:
            self._send(stock_request, why, actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Do nothing: the engine was in the fleet from the start."""

    def outstanding(self, replica: int) -> int:
        """Number of requests at the engine."""
        return len(self.stock.own(replica))

    def held(self, replica: int) -> list[int]:
        """Return no requests: no memory is reserved for them."""
        return []
