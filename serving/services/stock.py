"""A model on stock engines, such as vLLM behind HTTP, which queue, batch and preempt by themselves.

Here is decided to which of them a request goes (``Assign``) and whether one that runs goes on elsewhere:
``Preempt`` there, which is its abort, then ``Assign`` to the other, which computes prompt and tokens so far
again. No pass is chosen, and KV is moved only from engines that prefill to engines that decode
(``stock_handover``). docs/HTTP.md tells what of it a world carries out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, dispatched, refusal
from serving.kv.transfer_ids import TransferIds
from serving.live.nobody import nobody_live
from serving.live.scaling import LiveScaling
from serving.protocols.migration import Migrator, Pair, chosen_request, paired
from serving.services.rounds import Rounds
from serving.services.stock_handover import HandOverParts, StockHandOvers
from serving.services.stock_requests import StockEngines, StockRequest
from serving.services.stock_views import StockFleet, StockInstances, StockSource
from serving.vocabulary.actions import Action, Assign, Fail, Migrate, Preempt
from serving.vocabulary.events import Dropped, Observed, Ran, Sent, Streamed
from serving.vocabulary.present import Present
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

# A request whose connection broke so often has something that breaks them.
MOST_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class StockParts:
    """``elsewhere``: what a lost engine had goes on at another one; else it fails.

    ``migrator``: who decides, once per ``period_ns``, which running requests go elsewhere; None: nobody.
    ``hand_over``: engines prefill or decode, by their replicas' roles; None: each does both.
    """

    elsewhere: bool = True
    migrator: Migrator | None = None
    period_ns: int = 50_000_000
    hand_over: HandOverParts | None = None


class Stock:
    """``moved``: running requests that went elsewhere; ``resumed``: of those, whose engine was lost."""

    __slots__ = (
        "_admission", "_context", "_dispatcher", "_live", "_parts", "_view", "fleet", "hand_overs", "moved",
        "resumed", "rounds", "stock",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        replicas: Sequence[Replica],
        dispatcher: Dispatcher,
        admission: Admission,
        parts: StockParts,
        present: Present,
        transfer_ids: TransferIds,
    ) -> None:
        self._dispatcher, self._admission, self._parts = dispatcher, admission, parts
        self._context = min([one.max_model_len for one in replicas if one.max_model_len], default=None)
        self.stock = StockEngines(replicas)
        self.fleet = StockFleet(model, replicas, self.stock)
        self._view = StockInstances(self.fleet, self.stock, present, parts.period_ns)
        self.hand_overs: StockHandOvers | None = None
        if parts.hand_over is not None:
            self.hand_overs = StockHandOvers(parts.hand_over, replicas, self.fleet, self.stock, transfer_ids)
        self._live = nobody_live(model, transfer_ids)
        self.rounds: Rounds | None = None
        self.moved = self.resumed = 0

    @property
    def model(self) -> str:
        """Whose requests these are."""
        return self.fleet.model

    @property
    def migrates(self) -> bool:
        """Whether running requests may go elsewhere once per period."""
        return self._parts.migrator is not None

    # Requests.

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Too long for an engine, no engine left, or turned away by the admission policy."""
        if not self._serves():
            return f"no server of {self.model} is alive"
        reason = too_long(request, self.fleet.longest_request_tokens, self._context)
        return reason or refusal(self._admission, now_ns, request, self.fleet)

    def _serves(self) -> bool:
        """Whether engines are left that a request needs."""
        return self.fleet.replicas > 0 if self.hand_overs is None else self.hand_overs.serves()

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """To an engine, by the dispatcher; where engines prefill or decode to one that prefills."""
        self._send(StockRequest(request, -1), "", actions)

    def _send(self, one: StockRequest, why: str, actions: list[Action]) -> None:
        hand_overs = self.hand_overs
        if hand_overs is None:
            replica, reason = dispatched(self._dispatcher, one.request, self.fleet)
        else:
            replica, reason = hand_overs.prefill()
        self._assign(one, replica, f"{why}: {reason}" if why else reason, actions)
        if hand_overs is not None and hand_overs.together:
            hand_overs.begin(one, actions)

    def _assign(self, one: StockRequest, replica: int, reason: str, actions: list[Action]) -> None:
        self.fleet.assigned(replica, one.request)
        self.stock.send(one, replica)
        actions.append(Assign(one.request.id, replica, reason))

    def _take(self, request: int) -> StockRequest:
        one = self.stock.take(request)
        self.fleet.departed(one.replica, one.request)
        self._view.moving.pop(request, None)
        if self.hand_overs is not None:
            self.hand_overs.forget(request)
        return one

    def streamed(self, event: Streamed, actions: list[Action]) -> None:
        """Tokens came."""
        for request, tokens in event.tokens:
            if self.stock.got(event.replica, request, tokens):
                self._view.moving.pop(request, None)
        for request in event.finished:
            self._take(request)
        if self.hand_overs is not None:
            self.hand_overs.streamed(event, actions)

    def observed(self, event: Observed) -> None:
        """An engine told of itself."""
        self.stock.observe(event)

    def dropped(self, event: Dropped, actions: list[Action]) -> bool:
        """An engine will not, or did not, answer a request; returns whether that fails."""
        one = self._take(event.request)
        one.tries += 1
        ends = event.refused or not self._parts.elsewhere or one.tries >= MOST_TRIES
        if ends or not self._serves():
            actions.append(Fail(event.request, event.cause))
            return True
        self._send(one, event.cause, actions)
        return False

    # Running requests that go elsewhere.

    def look(self, actions: list[Action]) -> None:
        """A period is over."""
        migrator = self._parts.migrator
        if migrator is None:
            return
        for pair in paired(migrator, self._view):
            self._move(migrator, pair, actions)

    def _move(self, migrator: Migrator, pair: Pair, actions: list[Action]) -> None:
        view = StockSource(self.fleet, self.stock, pair.source, pair.destination)
        chosen = chosen_request(migrator, view)
        if chosen is None:
            return
        request, reason = chosen
        one, why = self._take(request), f"{pair.reason}; {reason}"
        actions.append(Preempt(pair.source, request, why))
        self._assign(one, pair.destination, why, actions)
        actions.append(Migrate(request, pair.source, pair.destination, "committed", "it is computed again"))
        self._view.moving[request] = (pair.source, pair.destination)
        self.moved += 1

    def quiet_until_ns(self) -> int:
        """Nobody knows: looked at every period."""
        return 0

    # Engines.

    def leave(self, replica: int, actions: list[Action]) -> None:
        """It takes nothing new, and ends what it has."""
        self.fleet.retire(replica)

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """What it had goes on elsewhere or fails; returns the latter."""
        engine.lose(actions, cause)
        gone = [self._take(request) for request in self._of(engine.id, cause, actions)]
        if engine.id in self.fleet.members:  # it never was, if it has not woken yet
            self.fleet.lose(engine.id)
        if self.hand_overs is not None:
            gone += [self._take(request) for request in self.hand_overs.stranded()]
        failed, serves = list[int](), self._serves()
        for one in gone:
            if self._parts.elsewhere and serves:
                self.resumed += one.generated > 0
                self._send(one, f"its server is lost ({cause})", actions)
            else:
                actions.append(Fail(one.request.id, cause))
                failed.append(one.request.id)
        return failed

    def _of(self, replica: int, cause: str, actions: list[Action]) -> list[int]:
        """What ends with an engine: requests at it, and those whose KV is on its way from it."""
        found = list(self.stock.own(replica))
        return found if self.hand_overs is None else found + self.hand_overs.cut_off(replica, cause, actions)

    @property
    def running(self) -> int:
        """Requests at engines."""
        return len(self.stock.requests)

    # What only engines do whose passes are chosen here.

    @property
    def longest_request_tokens(self) -> int:
        """That an engine of it holds."""
        return self.fleet.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens of requests of which no token has come."""
        return sum([one.waiting_tokens for one in self.stock.by_replica.values()])

    @property
    def kv_tokens(self) -> int:
        """All the tokens that the requests at engines may have."""
        return self.stock.kv_tokens

    @property
    def migrating_tokens(self) -> int:
        """None: KV stays where it is."""
        return 0

    @property
    def queued(self) -> int:
        """None: every request is sent on at once."""
        return 0

    @property
    def live(self) -> LiveScaling:
        """An engine serves when all of its layers are there."""
        return self._live

    def kv_senders(self) -> Collection[int]:
        """Nobody."""
        return ()

    def feed(self, actions: list[Action]) -> None:
        """Nothing waits."""

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Passes are its own business."""
        raise AssertionError(f"replica {engine.id} runs by itself and reports no passes")

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV of a request has come, or will not."""
        assert self.hand_overs is not None, f"transfer {event.transfer} is none of {self.model}"
        self.hand_overs.sent(event)
        return None

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """An engine is awake, or takes requests again before it went to sleep."""
        self.stock.join(replica)
        self.fleet.add(replica)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """It was in the fleet before."""

    def outstanding(self, replica: int) -> int:
        """Requests that it has."""
        return len(self.stock.own(replica))

    def held(self, replica: int) -> list[int]:
        """Nothing is kept for requests."""
        return []
