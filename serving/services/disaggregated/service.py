"""Separate prefill and decode instances (DistServe, BlitzScale), with one queue before each role.

Requests wait in one queue for an idle prefill instance, which takes as many whole prompts as its engine runs
in a pass. A computed prompt waits for a decode instance with room (``serving.kv.handover``). Its KV stays on
the prefill instance meanwhile, so prefill slows down if decode is full. Live instances take from the queue
while they load, and share their batches with idle prefill instances, else with a decode instance.
"""

from collections.abc import Collection, Mapping, Sequence

from serving.engine import leaving
from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Fleet, refusal
from serving.engine.progress import EngineState, Progress
from serving.kv.handover import HandOverRules, HandOvers
from serving.kv.transfer_ids import TransferIds
from serving.live.host import LiveSetup
from serving.live.never import never_live
from serving.live.scaling import LiveScaling
from serving.protocols.splitting import SupportsDecodePlaces, decode_place, prefills_again
from serving.services.disaggregated.conversions import Conversions, ConvertParts
from serving.services.disaggregated.instances import Instances
from serving.services.disaggregated.prefill_host import PrefillHost
from serving.services.disaggregated.prefill_queue import PrefillQueue
from serving.vocabulary.abort import CLIENT_LEFT, AbortState
from serving.vocabulary.actions import Abort, Action, Assign, Fail, SwitchRole
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

_IDLE = EngineState.IDLE
_HEAD = "head of the queue"
# Shown to admission policies: instances take from a common queue, and none has its own queue.
_EMPTY_FLEET = Fleet("", ())


class Disaggregated:
    """One model served by prefill and decode instances.

    ``max_num_batched_tokens``: prompt tokens of a prefill pass; a longer prompt runs alone.
    """

    __slots__ = (
        "_admission", "_context", "_engines", "_idle", "_longest", "_max_num_seqs", "_pairs", "_places",
        "_requests", "_room_tokens", "_switching_to_decode", "conversions", "decode", "hand_overs", "host",
        "live", "migrating", "model", "prefill", "queue", "view",
    )  # fmt: skip

    def __init__(
        self,
        *,
        prototype: Replica,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        admission: Admission,
        rules: HandOverRules,
        max_num_batched_tokens: int,
        transfer_ids: TransferIds,
        live: LiveSetup | None = None,
        by_priority: bool = False,
        converts: ConvertParts | None = None,
        places: SupportsDecodePlaces | None = None,
    ) -> None:
        """``converts``: lets decode instances compute prompts. ``places``: see ``SupportsDecodePlaces``."""
        self.model = prototype.model
        self._longest, self._context = prototype.longest_request_tokens, prototype.max_model_len
        self._room_tokens = prototype.room_tokens
        self._engines = engines
        self._requests = requests
        self._admission = admission
        self._max_num_seqs = rules.max_num_seqs
        self.hand_overs = HandOvers(
            engines,
            requests,
            rules,
            transfer_ids,
            block_tokens=prototype.block_tokens,
            sequence_blocks=prototype.sequence_blocks,
        )
        self.queue = PrefillQueue(max_num_batched_tokens, by_priority)
        self.prefill: set[int] = set()  # instances that take requests
        self.decode: set[int] = set()
        self._idle: set[int] = set()  # prefill instances that could take requests now
        # Prefill instances that switch to decode when they have computed the prompts they have begun
        self._switching_to_decode: set[int] = set()
        self.host = PrefillHost(self.model, self.queue, self.prefill, self.decode, self.hand_overs)
        self.view = Instances(
            self.model,
            engines=engines,
            requests=requests,
            queue=self.queue,
            prefill=self.prefill,
            decode=self.decode,
            switching=self._switching_to_decode,
            hand_overs=self.hand_overs,
        )
        self.conversions = Conversions(converts, self.view, engines, self.hand_overs)
        self._places = places
        self.migrating: Collection[int] = ()  # instances between which decoding requests migrate
        if places is not None:
            self.hand_overs.placing = self._place
        setup = never_live() if live is None else live
        self.live = LiveScaling(setup, engines, self.host, self.hand_overs.moves)
        self._pairs = self.live.pairs

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that any instance holds: all instances are alike."""
        return self._longest

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return self.queue.backlog_tokens + self.conversions.own_tokens

    @property
    def kv_tokens(self) -> int:
        """Room reserved on decode instances, and wanted by requests whose prompt is computed.

        If ``max_num_seqs`` is reached before memory, a request counts as memory / ``max_num_seqs``.
        """
        tokens, reserved_requests = self.hand_overs.demand_tokens, self.hand_overs.demand_requests
        return max(tokens, -(-reserved_requests * self._room_tokens // self._max_num_seqs))

    @property
    def migrating_tokens(self) -> int:
        """KV that waits at prefill instances or is in transfer."""
        return self.hand_overs.migrating_tokens

    def kv_senders(self) -> Collection[int]:
        """The instances that send KV now."""
        return self.hand_overs.moves.senders()

    @property
    def queued(self) -> int:
        """Requests that are at no instance yet."""
        return len(self.queue.requests)

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Refuse a request that is too long for an instance, or that the admission policy rejects."""
        reason = too_long(request, self._longest, self._context)
        return refusal(self._admission, now_ns, request, _EMPTY_FLEET) if reason is None else reason

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Queue the request, and begin it if a prefill instance is idle, or give it to a decode instance."""
        if self.conversions.take(request, actions):
            return
        if self._places is not None:
            self._return_to_prefill(self._places, actions)
        tokens, queue = request.prompt_tokens, self.queue
        queue.backlog_tokens += tokens
        if self._idle and not queue.requests:  # as feed would, if there is memory for it
            replica = min(self._idle)
            engine = self._engines[replica]
            ledger = engine.ledger
            if ledger.blocks_for(tokens) <= ledger.free_blocks - ledger.watermark_blocks:
                self._idle.discard(replica)
                actions.append(Assign(request.id, replica, _HEAD))
                engine.take((request,), actions)
                return
        queue.add(request)
        if self._idle or self._pairs:
            self.feed(actions)

    def feed(self, actions: list[Action]) -> None:
        """Give idle instances work: begun batches of live instances first, new batches of those last."""
        live = self.live
        if not self._pairs:
            self._feed_idle(actions)
            return
        live.pull(self._idle, actions)
        self._feed_idle(actions)
        live.work(actions)

    def _feed_idle(self, actions: list[Action]) -> None:
        """Let idle prefill instances take from the queue, the lowest id first."""
        idle, queue = self._idle, self.queue
        while queue.requests and idle:
            replica = min(idle)
            batch = queue.next_batch(self._engines[replica])
            if not batch:
                while self._take_in_turns(actions):
                    pass
                return
            self._assign_batch(replica, batch, actions)

    def _assign_batch(self, replica: int, batch: list[Request], actions: list[Action]) -> None:
        self._idle.discard(replica)
        actions += [Assign(request.id, replica, _HEAD) for request in batch]
        self._engines[replica].take(batch, actions)

    def _take_in_turns(self, actions: list[Action]) -> bool:
        """Give batches to idle instances in turn; whether one without memory before may now have enough."""
        passed_over = again = False
        queue = self.queue
        for replica in sorted(self._idle):
            if not queue.requests:
                return False
            batch = queue.next_batch(self._engines[replica])
            if not batch:
                passed_over = True  # its memory is full of KV that waits for its hand-over
                continue
            again = passed_over
            self._assign_batch(replica, batch, actions)
        return again

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Hand over completed prompts, give an idle prefill instance more, use freed room."""
        hand_overs = self.hand_overs
        if engine.layer_pass is not None and engine.layer_pass.begun:
            self._ran_layers(engine, event, actions)
            return
        if engine.handing_over:
            earlier = len(engine.outgoing)
            if event.steps:
                self.queue.backlog_tokens -= engine.handing_over_tokens()
            engine.ran(event, actions)
            turns = engine.id in self._switching_to_decode and not _begun_tokens(engine)
            if turns:
                self._open_for_decode(engine)
            if len(engine.outgoing) > earlier:
                hand_overs.completed(engine, earlier, actions)
            if turns:
                hand_overs.match(actions)
                self._let_help(actions)
            if engine.state is _IDLE and engine.id in self.prefill:
                self._idle.add(engine.id)
                if self.queue.requests or self._pairs:
                    self.feed(actions)
            return
        engine.ran(event, actions)
        if event.finished:
            for request in event.finished:
                hand_overs.departed(engine.id, request)
        # An engine that preempted its last request waits for a match, not for a finish.
        if (event.finished or engine.state is _IDLE) and hand_overs.waiting:
            hand_overs.match(actions)
        if event.finished:
            self._let_help(actions)  # it may have room now for a batch it could not pull
            if self._places is not None:
                self._return_to_prefill(self._places, actions)

    def _ran_layers(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        new = self.live.ran(engine, event, actions)
        if engine.state is _IDLE and engine.id in self.prefill:
            self._idle.add(engine.id)
        self.feed(actions)
        engine.freed(actions)
        new.freed(actions)  # if a batch ended with its first token and it decodes by now
        if self.hand_overs.waiting:
            self.hand_overs.match(actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV has arrived: its requests decode there. Returns the source, which has free memory now."""
        if self.live.enabled and self.live.activations_arrived(event, actions):
            self.feed(actions)
            return None
        source = self.hand_overs.sent(event, actions)
        if source is not None and ((self._idle and self.queue.requests) or self._pairs):
            self.feed(actions)
        return source

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let an instance prefill or decode from now on."""
        assert role != "both", "a disaggregated model has no instance that does both"
        engine = self._engines[replica.id]
        if role == "decode":
            if engine.hands_over and _begun_tokens(engine):
                self._switching_to_decode.add(replica.id)
            else:
                self._begin_decoding(engine, actions)
            return
        engine.switch_role(role)
        self.conversions.prefills(engine)
        self.prefill.add(replica.id)
        if engine.state is _IDLE and not self.live.promised(replica.id):
            self._idle.add(replica.id)
            self.feed(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Join in the instance's role."""
        if engine.state is _IDLE:
            self.join(engine.replica, engine.replica.role, actions)

    def _begin_decoding(self, engine: Engine, actions: list[Action]) -> None:
        """Let it take computed prompts from now on, its own first."""
        self._open_for_decode(engine)
        self.hand_overs.match(actions)
        self._let_help(actions)

    def _let_help(self, actions: list[Action]) -> None:
        """If no instance prefills, let decode instances pull batches that live instances have begun."""
        if self._pairs and not self.prefill:
            self.feed(actions)

    def _open_for_decode(self, engine: Engine) -> None:
        self._switching_to_decode.discard(engine.id)
        engine.switch_role("decode")
        self.conversions.decodes(engine)
        self.decode.add(engine.id)
        self.hand_overs.open(engine.id)

    # Instances whose role a policy changes.

    def _place(self, requests: Sequence[Request], actions: list[Action]) -> tuple[int, str] | None:
        """Where computed prompts decode; a prefill instance first computes the prompts it has begun."""
        place = decode_place(self._places, requests, self.view)
        if place is None or place[0] in self.decode:
            return place
        replica, reason = place
        actions.append(SwitchRole(replica, "decode", reason))
        self.prefill.discard(replica)
        self._idle.discard(replica)
        if _begun_tokens(self._engines[replica]):
            self._switching_to_decode.add(replica)
            return None
        self._open_for_decode(self._engines[replica])
        return place

    def _return_to_prefill(self, policy: SupportsDecodePlaces, actions: list[Action]) -> None:
        """Let decode instances without requests compute prompts again, where the policy says so."""
        turned = False
        for replica in sorted(self.decode):
            engine = self._engines[replica]
            if engine.state is not _IDLE or replica in self.migrating or self.outstanding(replica):
                continue
            if self.hand_overs.reserved_requests[replica]:
                continue
            why = prefills_again(policy, replica, self.view)
            if why is not None:
                actions.append(SwitchRole(replica, "prefill", why))
                self.leave(replica, actions)
                engine.switch_role("prefill")
                self.conversions.prefills(engine)
                self.prefill.add(replica)
                self._idle.add(replica)
                turned = True
        if turned:
            self.feed(actions)

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire an instance: its computed KV is still fetched, and KV sent to it still arrives."""
        self.prefill.discard(replica)
        self._idle.discard(replica)
        self._switching_to_decode.discard(replica)
        self.decode.discard(replica)
        self.hand_overs.close(replica)

    def abort(self, request: Request, rank: float, actions: list[Action]) -> AbortState:
        """Let a request go from the queue or its instance; with KV in transfer, or in a live batch, later."""
        queue = self.queue
        if request in queue.requests:
            queue.withdraw(request)
            actions.append(Abort(request.id, -1, 0, CLIENT_LEFT))
            if self._idle or self._pairs:
                self.feed(actions)
            return AbortState.GONE
        for engine in self._engines.values():
            if engine.replica.model != self.model or not leaving.is_here(engine, request.id):
                continue
            state = leaving.abort(engine, request.id, self._client_left, actions, later=engine.id < rank)
            if state is AbortState.HELD and self.hand_overs.drop(engine, request.id, actions):
                state = AbortState.GONE
            return state
        return AbortState.HELD

    def _client_left(self, replica: int, progress: Progress) -> None:
        """Release its room if it decodes, else its part of the backlog."""
        if self.hand_overs.has_room(progress.id):
            self.hand_overs.departed(replica, progress.id)
        else:
            self.queue.backlog_tokens -= progress.known_tokens - progress.computed

    def let_go(self, requests: Sequence[int], rank: float, actions: list[Action]) -> None:
        """Use the room and the memory that these requests have freed."""
        self.hand_overs.match(actions)
        self._let_help(actions)
        if self._idle and self.queue.requests:
            self.feed(actions)

    def outstanding(self, replica: int) -> int:
        """Requests that it computes or keeps, and those in transfer to it."""
        engine = self._engines[replica]
        held = len(engine.running) + len(engine.waiting) + len(engine.outgoing) + len(engine.attached)
        held += len(self.hand_overs.batch_to(replica))
        if not self.live.enabled:
            return held  # with live scaling it may also keep KV of first layers
        return max(held, len(engine.ledger.holders())) + self.live.outstanding(replica)

    def held(self, replica: int) -> list[int]:
        """Requests whose KV is arriving, or of which it has a piece, or whose layers it runs."""
        hand_overs = self.hand_overs
        return [*hand_overs.batch_to(replica), *hand_overs.moves.pieces.at(replica), *self.live.held(replica)]

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Resend elsewhere what was sent to it; fail and return its own requests."""
        self.leave(engine.id, actions)
        unsent = [progress.id for progress in engine.outgoing]
        staying = [*unsent, *(progress.id for progress in engine.attached)]
        in_pass = engine.handing_over_tokens() if engine.handing_over else 0
        if engine.hands_over or in_pass:  # it may have switched to decode during the pass
            self.queue.backlog_tokens -= _begun_tokens(engine) + in_pass
        else:
            staying += [*engine.running, *(progress.id for progress in engine.waiting)]
        failed = engine.lose(actions, cause)
        self.host.dropped(engine)
        gone = self.hand_overs.lost(engine.id, unsent, staying, actions)
        actions += [Fail(request, cause) for request in gone]
        failed += gone
        if self.live.enabled:
            failed += self._lose_live(engine, cause, actions)
        self.hand_overs.match(actions)
        return failed

    def _lose_live(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Fail requests whose first layers only this instance had."""
        live = self.live
        gone = live.lost(engine.id, actions)
        self.queue.backlog_tokens -= sum([request.prompt_tokens for request in gone])
        failed = [request.id for request in gone]
        actions += [Fail(request, cause) for request in failed]
        idle = [
            prefill_engine for prefill_engine in self.prefill if self._engines[prefill_engine].state is _IDLE
        ]
        self._idle.update(idle_engine for idle_engine in idle if not live.promised(idle_engine))
        self.feed(actions)
        return failed


def _begun_tokens(engine: Engine) -> int:
    """Prompt tokens that a prefill instance has taken and that its current pass does not compute."""
    begun = (*engine.waiting, *engine.prefilling.values())
    return (
        sum([progress.known_tokens - progress.computed for progress in begun]) - engine.handing_over_tokens()
    )
