"""Prefill and decode on the same instances, each with its own queue, behind one dispatcher.

With a common queue no instance's queue grows beyond a pass: other requests wait in ``queue``, so that a new
instance finds work (if instances come and go, separate queues alone make P99 1.6 to 2.6 times worse).
Otherwise every request is dispatched at arrival, and ``queue`` is used only while there are no instances.
While live instances load, all requests wait in ``queue``; an instance that has no prompts left to compute
takes prompts from it, or layers of batches that live instances have begun.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Literal

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet, dispatched, refusal
from serving.engine.progress import EngineState
from serving.engine.waiting import line_up
from serving.kv.moves import Moves
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.live.colocated import ColocatedLive, between_passes, freed
from serving.live.decode_places import DecodePlaces
from serving.live.first_layers import FirstLayers
from serving.live.host import LiveSetup
from serving.live.never import never_live
from serving.live.scaling import LiveScaling
from serving.services.colocated.live_host import ColocatedHost, backlog_tokens
from serving.vocabulary.actions import Action, Assign, Fail
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

Queue = Literal["common", "per_instance"]


class Colocated:
    """One model. ``elastic``: it may have no instances for a while; else a request is then refused."""

    __slots__ = (
        "_admission", "_by_priority", "_common", "_context", "_dispatcher", "_engines", "_longest",
        "_max_num_batched_tokens", "_pairs", "_redispatches", "_requests", "elastic", "fleet", "live",
        "queue", "sharing",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        dispatcher: Dispatcher,
        admission: Admission,
        prototype: Replica | None = None,
        max_num_batched_tokens: int = 0,
        transfer_ids: TransferIds | None = None,
        live: LiveSetup | None = None,
        queue: Queue | None = None,
        max_model_len: int | None = None,
        by_priority: bool = False,
    ) -> None:
        """``prototype``: what future instances are like; None: there are none.

        ``max_num_batched_tokens``: with a common queue an instance takes no more once this many prompt tokens
        wait there. ``transfer_ids``: for the live part. ``queue`` None: common if elastic, else per instance;
        what waits at a lost instance fails with it. "per_instance": what waits at a draining or lost instance
        is dispatched again. ``max_model_len``: see ``Replica``. ``by_priority``: the order of ``queue``.
        """
        self.fleet, self._max_num_batched_tokens = fleet, max_num_batched_tokens
        self._engines, self._requests = engines, requests
        self._dispatcher, self._admission = dispatcher, admission
        self.elastic = prototype is not None
        self._common = queue == "common" or (queue is None and self.elastic)
        self._redispatches = queue == "per_instance"
        setup = never_live() if live is None else live
        assert self._common or not setup.enabled, "live instances take from a common queue"
        self._longest = 0 if prototype is None else prototype.longest_request_tokens
        self._context, self._by_priority, self.queue = max_model_len, by_priority, deque[Request]()
        moves = Moves(engines, Pieces(engines, setup.kv_bytes_per_token), transfer_ids or TransferIds())
        places = DecodePlaces(fleet, setup.layers)
        first_layers = FirstLayers(engines, moves, fleet, requests)
        host = ColocatedHost(
            fleet, engines, self.queue, max_num_batched_tokens, setup.max_num_seqs, places, first_layers
        )
        self.live = LiveScaling(setup, engines, host, moves)
        self._pairs = self.live.pairs
        self.sharing = ColocatedLive(self.live, engines, places, first_layers)

    @property
    def model(self) -> str:
        """The model of these requests."""
        return self.fleet.model

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that existing or future instances hold."""
        return self._longest or self.fleet.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet, in any queue."""
        return backlog_tokens(self.queue, self.live.requests, self.fleet, self._engines)

    @property
    def kv_tokens(self) -> int:
        """The tokens that requests at instances are expected to have, including new ones."""
        return self.fleet.kv_demand + self.sharing.kv_tokens

    @property
    def migrating_tokens(self) -> int:
        """KV of first layers in transfer to the instance that has the others."""
        return self.sharing.migrating_tokens

    def kv_senders(self) -> Collection[int]:
        """The instances that send KV now."""
        return ()  # a request decodes where its prompt was computed

    @property
    def queued(self) -> int:
        """Requests that are at no instance yet."""
        return len(self.queue)

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Reason: too long for an instance, no instance left, or rejected by the admission policy."""
        kv_tokens = self._longest or self.fleet.longest_request_tokens
        if (reason := too_long(request, kv_tokens, self._context)) is None:
            return refusal(self._admission, now_ns, request, self.fleet)
        if not self.elastic and not self.fleet.replicas:
            return f"no replica of {request.model} is alive"
        return reason

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Dispatch to an instance's queue; to the common queue while a live instance loads."""
        fleet = self.fleet
        if self._pairs or not fleet.replicas:
            line_up(self.queue, (request,), self._by_priority)
            self.feed(actions)
            return
        replica, reason = dispatched(self._dispatcher, request, fleet)
        if self._common and not self._takes(replica):
            # A request waits in the common queue only if no instance takes it.
            others = [other for other in fleet.alive() if self._takes(other)]
            if self.queue or not others:
                line_up(self.queue, (request,), self._by_priority)
                return
            replica, reason = others[0], f"the first with room, for {replica} has none"
        self._assign(request, replica, reason, actions)

    def _assign(self, request: Request, replica: int, reason: str, actions: list[Action]) -> None:
        engine, reports = self._engines[replica], self.fleet.reports
        if reports is not None:
            reports.settle(replica)
        self.fleet.assigned(replica, request)
        actions.append(Assign(request.id, replica, reason))
        engine.enqueue(request, actions)
        if reports is not None and reports.arrived(replica):
            engine.cut_run(actions)

    def _takes(self, replica: int) -> bool:
        """Whether less than a pass waits in an instance's queue."""
        waiting = (*self._engines[replica].waiting, *self._engines[replica].unseen_arrivals)
        return sum([progress.known_tokens for progress in waiting]) < self._max_num_batched_tokens

    def feed(self, actions: list[Action], reporting: int = -1) -> None:
        """Give idle instances work: begun batches of live instances first, new batches of those last.

        reporting: the instance whose report is handled, if one is.
        """
        if not self._pairs:
            for replica in self.partners() if self._common else ():
                self._feed(replica, actions)
            while self.queue and self.fleet.replicas and not self._common:
                request = self.queue.popleft()
                replica, reason = dispatched(self._dispatcher, request, self.fleet)
                self._assign(request, replica, reason, actions)
            return
        before = -1
        while before < len(actions):  # what one instance takes changes what another may take
            before = len(actions)
            self._feed_live(actions, reporting)

    def _feed_live(self, actions: list[Action], reporting: int) -> None:
        fleet, live = self.fleet, self.sharing
        live.end_own(actions)
        # First the instance with the fewest resident requests, which have to wait.
        for replica in sorted(self.partners(), key=lambda one: (fleet.load(one, "outstanding"), one)):
            if not live.free(replica):
                continue
            batch = live.offered(replica)
            if batch is not None:
                live.take_over(replica, batch, replica == reporting, actions)
            elif self.queue:
                self._take_pass(replica, actions)
        live.work(actions)

    def _take_pass(self, replica: int, actions: list[Action]) -> None:
        """An instance without prompts of its own takes a pass of them from the queue."""
        engine, batch, tokens = self._engines[replica], list[Request](), 0
        while self.queue and tokens < self._max_num_batched_tokens:
            request = self.queue.popleft()
            tokens += request.prompt_tokens
            batch.append(request)
            self.fleet.assigned(replica, request)
            actions.append(Assign(request.id, replica, f"from the queue, {len(self.queue)} stay"))
        if engine.state is EngineState.IDLE:
            engine.take(batch, actions)
            return
        for request in batch:
            engine.enqueue(request, actions)

    def _feed(self, replica: int, actions: list[Action]) -> None:
        """Let an instance take as many requests from the queue as it has room for."""
        while self.queue and self._takes(replica):
            self._assign(self.queue.popleft(), replica, f"from the queue, {len(self.queue)} stay", actions)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Handle an engine's report; finished requests leave."""
        layer_pass, finished, reports = engine.layer_pass, event.finished, self.fleet.reports
        if layer_pass is not None and layer_pass.begun:
            self._ran_layers(engine, event, actions)
            return
        if reports is not None and not (finished and reports.at_changes):
            reports.settle(engine.id)  # else a new report replaces it
        engine.ran(event, actions)
        if finished:
            departed, requests = self.fleet.departed, self._requests
            for request in finished:
                departed(event.replica, requests[request])
            if self.live.enabled:
                self.sharing.has_more(engine.id)
        if reports is not None and (event.running or not engine.halts):  # else nothing is chosen yet
            reports.look(engine.id, bool(finished), event.steps)
        if self._pairs:
            self.feed(actions, engine.id)
        elif self.queue and event.replica in self.fleet:
            self._feed(event.replica, actions)

    def _ran_layers(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        changed = self.sharing.ran(engine, event, actions)
        self.feed(actions)
        for one in changed:
            freed(one, actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """First layers' KV has arrived: its requests decode. Returns the source, where memory is free."""
        if self.live.activations_arrived(event, actions):
            self.feed(actions)
            return None
        ends = self.sharing.sent(event, actions)
        if ends is None:
            return None
        source, target = ends
        self.feed(actions)
        between_passes(target, actions)
        freed(source, actions)
        return source.id

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let an instance take requests, first those in the common queue."""
        assert role == "both", "a colocated model's instances do both"
        self.fleet.add(replica)
        self.feed(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Give waiting requests to an instance that was in the fleet before."""
        self.feed(actions)

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Stop sending requests to an instance."""
        self.fleet.retire(replica)
        if not self._common:
            engine = self._engines[replica]
            back = self._withdraw_waiting(engine)
            if back and engine.state is EngineState.RUNNING:
                engine.cut_run(actions)  # its pass was chosen while requests waited
            line_up(self.queue, back, self._by_priority)
            self.feed(actions)

    def _withdraw_waiting(self, engine: Engine) -> list[Request]:
        """Take back requests that wait at an instance and have not begun there."""
        back = [self._requests[id] for id in engine.withdraw()]
        for request in back:
            self.fleet.departed(engine.id, request)
        if (reports := self.fleet.reports) is not None:
            reports.look(engine.id)
        return back

    def outstanding(self, replica: int) -> int:
        """Requests assigned to an instance and not finished, and those whose layers or KV it has."""
        own = self.fleet.load(replica, "outstanding") if replica in self.fleet.members else 0
        return own + self.sharing.outstanding(replica)

    def held(self, replica: int) -> list[int]:
        """Requests whose layers, or KV of first layers, the instance has."""
        return self.sharing.held(replica)

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self.fleet.alive()

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Fail its requests and requests whose layers only it had; requeue batches of other instances."""
        if self._redispatches:
            line_up(self.queue, self._withdraw_waiting(engine), self._by_priority)
        failed = engine.lose(actions, cause)
        for request in failed:
            self.fleet.departed(engine.id, self._requests[request])
        gone = [request.id for request in self.sharing.lost(engine.id, actions)]
        actions += [Fail(request, cause) for request in gone]
        failed += gone
        if engine.id in self.fleet.members:  # an instance that was still loading never was a member
            self.fleet.lose(engine.id)
        if not self.elastic and not self.fleet.replicas:
            stranded = [request.id for request in self.queue]
            self.queue.clear()
            actions += [Fail(request, cause) for request in stranded]
            failed += stranded
        if self.live.enabled or self._redispatches:
            self.feed(actions)
        for replica in self.fleet.members if self.live.enabled else ():
            freed(self._engines[replica], actions)
        return failed
