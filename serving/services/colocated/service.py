"""Prefill and decode on the same instances, each with its own queue, behind one dispatcher.

With a common queue no instance's queue grows beyond a pass: other requests wait in ``queue``, so that a new
instance finds work (if instances come and go, separate queues alone make P99 1.6 to 2.6 times worse).
Otherwise every request is dispatched at arrival, and ``queue`` is used only while there are no instances.
While live instances load, all requests wait in ``queue``; an instance that has no prompts left to compute
takes prompts from it, or layers of batches that live instances have begun.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from serving.engine import leaving
from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet, dispatched, refusal
from serving.engine.limits import limit_decoding
from serving.engine.progress import EngineState, Progress
from serving.engine.waiting import line_up
from serving.kv.moves import Moves
from serving.kv.pieces import Piece, Pieces
from serving.kv.transfer_ids import TransferIds
from serving.live.colocated import ColocatedLive, between_passes, freed
from serving.live.decode_places import DecodePlaces
from serving.live.first_layers import FirstLayers
from serving.live.host import LiveSetup
from serving.live.never import never_live
from serving.live.pairs import LivePair
from serving.live.scaling import LiveScaling
from serving.vocabulary.abort import CLIENT_LEFT, AbortState
from serving.vocabulary.actions import Abort, Action, Assign, Fail
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

# Live pairs' access to the common queue of instances that prefill and decode (implements LiveHost).


def backlog_tokens(
    waiting: Iterable[Request], batches: Iterable[Request], fleet: Fleet, engines: Mapping[int, Engine]
) -> int:
    """Prompt tokens not computed yet: in the common queue, in live instances' batches and at instances."""
    tokens = sum([request.prompt_tokens for request in waiting])
    tokens += sum([request.prompt_tokens for request in batches])
    for replica in fleet.members:
        engine = engines[replica]
        begun = (*engine.waiting, *engine.prefilling.values())
        tokens += sum([progress.known_tokens - progress.computed for progress in begun])
    return tokens


class ColocatedHost:
    """The common queue of a colocated model (``queue``), with its instances as partners.

    ``max_num_batched_tokens``: the maximum number of prompt tokens in a batch. ``max_num_seqs``: the maximum
    number of requests that decode on one instance.
    """

    __slots__ = (
        "_engines", "_first_layers", "_fleet", "_max_num_batched_tokens", "_most_requests", "_places",
        "_queue",
    )  # fmt: skip

    def __init__(
        self,
        *,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        queue: deque[Request],
        max_num_batched_tokens: int,
        max_num_seqs: int,
        places: DecodePlaces,
        first_layers: FirstLayers,
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._queue = queue
        self._max_num_batched_tokens = max_num_batched_tokens
        self._most_requests = max_num_seqs
        self._places = places
        self._first_layers = first_layers

    @property
    def model(self) -> str:
        """The model of these instances."""
        return self._fleet.model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet."""
        return backlog_tokens(self._queue, batches, self._fleet, self._engines)

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue arrived."""
        return self._queue[0].arrival_ns if self._queue else None

    def fetch(self, engine: Engine) -> list[Request]:
        """The next batch from the queue that the engine has memory for: one pass on a new instance."""
        ledger, batch = engine.ledger, list[Request]()
        tokens, free = 0, ledger.free_blocks - ledger.watermark_blocks
        while self._queue:
            request = self._queue[0]
            tokens += request.prompt_tokens
            free -= ledger.blocks_for(request.prompt_tokens)
            full = len(batch) == self._most_requests or (batch and tokens > self._max_num_batched_tokens)
            if free < 0 or full:
                break
            batch.append(self._queue.popleft())
        return batch

    def give_back(self, requests: Iterable[Request]) -> None:
        """Put the requests back at the head of the queue."""
        self._queue.extendleft(reversed(list(requests)))

    def partners(self) -> list[int]:
        """Instances that take requests."""
        return self._fleet.alive()

    def helpers(self) -> list[int]:
        """None: all instances are partners."""
        return []

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether the engine computes no prompts, and ``max_num_seqs`` lets it decode its pair's next batch.

        Requests in its own queue arrived after its batches.
        """
        if engine.prefilling:
            return False
        own = None if pair is None or not pair.fully_loaded else pair.next_own()
        if own is None:
            return True
        decoding = len(engine.running) + len(engine.attached) + len(engine.outgoing)
        return decoding + len(own.requests) <= self._most_requests

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether a reporting instance may take these as prompts, by memory and ``max_num_seqs``."""
        ledger, wanted = engine.ledger, list(requests)
        if self._fleet.load(engine.id, "outstanding") + len(wanted) > self._most_requests:
            return False
        blocks = sum([ledger.blocks_for(request.prompt_tokens) for request in wanted])
        return blocks <= ledger.free_blocks - ledger.watermark_blocks - ledger.step_blocks()

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Do nothing: the requests are counted where they will decode (``DecodePlaces``)."""

    def dropped(self, engine: Engine) -> None:
        """Do nothing: no room was reserved."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """All layers of a batch are computed: it decodes here, with those that the batcher admits."""
        limit_decoding(engine, self._most_requests)
        self._places.computed([progress.id for progress in done])
        self._first_layers.computed(engine, done, first_layers, actions)


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
        *,
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
        """``prototype``: a replica like those that may be added; None: no replicas are added.

        ``max_num_batched_tokens``: with a common queue, an instance with this many waiting prompt tokens
        takes no more. ``transfer_ids``: ids for transfers of live scaling. ``queue`` None: a common queue if
        elastic, else one per instance; requests that wait at a lost instance fail. "per_instance": requests
        that wait at a draining or lost instance are dispatched again. ``max_model_len``: see ``Replica``.
        ``by_priority``: the order of ``queue``.
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
        moves = Moves(engines, Pieces(engines, setup.kv_bytes), transfer_ids or TransferIds())
        places = DecodePlaces(fleet, setup.layers)
        first_layers = FirstLayers(engines, moves, fleet, requests)
        host = ColocatedHost(
            fleet=fleet,
            engines=engines,
            queue=self.queue,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=setup.max_num_seqs,
            places=places,
            first_layers=first_layers,
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
        if self._common and not self._has_queue_room(replica):
            # A request waits in the common queue only if no instance takes it.
            eligible = [other for other in fleet.alive() if self._has_queue_room(other)]
            if self.queue or not eligible:
                line_up(self.queue, (request,), self._by_priority)
                return
            replica, reason = eligible[0], f"the first with room, for {replica} has none"
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

    def _has_queue_room(self, replica: int) -> bool:
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
        for replica in sorted(
            self.partners(), key=lambda partner: (fleet.load(partner, "outstanding"), partner)
        ):
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
        while self.queue and self._has_queue_room(replica):
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
        for replica in changed:
            freed(replica, actions)

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
            withdrawn = self._withdraw_waiting(engine)
            if withdrawn and engine.state is EngineState.RUNNING:
                engine.cut_run(actions)  # its pass was chosen while requests waited
            line_up(self.queue, withdrawn, self._by_priority)
            self.feed(actions)

    def _withdraw_waiting(self, engine: Engine) -> list[Request]:
        """Take back requests that wait at an instance and have not begun there."""
        withdrawn = [self._requests[id] for id in engine.withdraw()]
        for request in withdrawn:
            self.fleet.departed(engine.id, request)
        if (reports := self.fleet.reports) is not None:
            reports.look(engine.id)
        return withdrawn

    def abort(self, request: Request, rank: float, actions: list[Action]) -> AbortState:
        """Let a request go from the queue or from its instance; of a live batch, when it is computed."""
        if request in self.queue:
            self.queue.remove(request)
            actions.append(Abort(request.id, -1, 0, CLIENT_LEFT))
            return AbortState.GONE
        for replica in self.fleet.members:
            if leaving.is_here(self._engines[replica], request.id):
                return self._abort_at(self._engines[replica], request.id, replica < rank, actions)
        return AbortState.HELD

    def _abort_at(self, engine: Engine, request: int, later: bool, actions: list[Action]) -> AbortState:
        reports = self.fleet.reports
        if reports is not None:
            reports.settle(engine.id)
        state = leaving.abort(engine, request, self._client_left, actions, later=later)
        if state is AbortState.GONE:
            if reports is not None:
                reports.withdrew(engine.id)
            if self._pairs:
                self.feed(actions)
            elif self.queue and engine.id in self.fleet:
                self._feed(engine.id, actions)
        return state

    def _client_left(self, replica: int, progress: Progress) -> None:
        self.fleet.departed(replica, self._requests[progress.id])
        if self.live.enabled:
            self.sharing.has_more(replica)

    def let_go(self, requests: Sequence[int], rank: float, actions: list[Action]) -> None:
        """Do nothing: what they have freed is used where they were, when they leave."""

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
