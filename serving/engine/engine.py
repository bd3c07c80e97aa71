"""The engine of one replica: its queue, its running set and its KV memory, as a state machine.

It applies what a batcher chooses and does not depend on the kind of batcher. docs/contributing/STATES.md has
the table of its states and events.

An arrival interrupts a run if it may change it. After a report a new pass is chosen unless the run continues.
Requests whose KV comes from another replica (``join_batch``) join decode steps in progress at the next
boundary; they interrupt any other run. A replica that hands over (role prefill) runs only prompts. Completed
prompts are ``outgoing`` and keep their memory until they are fetched. ``layer_pass``: a pass over some layers
of a live pair's prompts (``serving.live``); it runs before the engine's next own pass.

Under asynchronous scheduling a step is chosen while the previous one runs. So an arrival or a finish during a
step counts only from the second boundary after it. For one step more, new requests wait in
``unseen_arrivals``, and finished ones keep their blocks and count against ``max_num_seqs``. If nothing else
can run, both are seen at once.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from serving.engine.batch_answers import (
    BatchQuestion,
    check_batch,
    check_blocks,
    check_victims,
    idle_with_work,
)
from serving.engine.host_memory import HostMemory
from serving.engine.kv_ledger import ledger_of
from serving.engine.layer_pass import LayerPass
from serving.engine.preemption import take_kv
from serving.engine.progress import EngineState, Leaver, Order, Progress
from serving.engine.waiting import queue_first, queue_up, would_head
from serving.protocols.batch import UNLIMITED, Batch, Batcher, ReplicaView, chosen
from serving.vocabulary.abort import CLIENT_LEFT
from serving.vocabulary.actions import Abort, Action, Chunk, Fail, Interrupt, JoinBatch, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

# On Python 3.11 every look-up through the class costs as much as the rest of a short method.
_IDLE, _RUNNING, _STOPPING, _LOST, _LOADING, _VACANT = EngineState
_GONE = (_LOST, _VACANT)


class Engine:
    """One replica's queue, batch and memory."""

    __slots__ = (
        "_admitted", "_arrival_queue", "_chunks", "_decode_first", "_steps_left", "_stop", "asynchronous",
        "attached", "batcher", "checks", "coalesce", "ended", "epoch", "halts", "handing_over", "hands_over",
        "host", "id", "interruptible", "joining", "layer_pass", "leaving", "ledger", "lockstep",
        "max_num_seqs", "new_limit", "order", "outgoing", "preemptions", "prefilling", "prompts_alone",
        "replica", "running", "state", "unseen_arrivals", "view", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        replica: Replica,
        batcher: Batcher,
        *,
        coalesce: bool = True,
        asynchronous: bool = False,
        loaded: bool = True,
        prompts_alone: bool = False,
        checks: bool = True,
        lockstep: bool = False,
        named: bytes | None = None,
        order: Order = "fcfs",
    ) -> None:
        """``prompts_alone``: a pass with prompts is reported after its first step.

        ``checks``: whether the batcher's answers are checked in full. ``lockstep``: the replica is a rank of
        a data-parallel group, whose steps begin together; if nothing was chosen in time, it runs a dummy
        step. ``order`` "priority": requests of higher ``priority`` wait before the others and are preempted
        after them.
        """
        self.id = replica.id
        self.replica = replica
        self.batcher = batcher
        self.coalesce = coalesce
        self.halts = False  # between steps: see ``serving.engine.boundary``
        self.asynchronous = asynchronous
        self.epoch = 0
        self.ledger = ledger_of(replica, late_tokens=int(asynchronous), named=named)
        self.host = HostMemory(replica.swap_blocks, replica.swap_block_ns)
        self.waiting: deque[Progress] = deque()
        self.unseen_arrivals: deque[Progress] = deque()  # asynchronous: arrived since the last choice
        self.ended: list[int] = []  # asynchronous: finished since then
        self._arrival_queue = self.unseen_arrivals if asynchronous and loaded else self.waiting
        self._stop = Interrupt(replica.id, "arrival", int(asynchronous))
        self.running: dict[int, Progress] = {}
        self.prefilling: dict[int, Progress] = {}
        self.hands_over = replica.role == "prefill"
        self.outgoing: deque[Progress] = deque()  # their prompts are computed, their KV waits here
        self.attached: list[Progress] = []  # their KV is here, they decode from the next pass on
        self.joining: list[Sequence[Progress]] = []  # of these, the ones that join the run in progress
        self.leaving: dict[int, Leaver] = {}  # see ``serving.engine.leaving``
        self.checks, self.lockstep = checks, lockstep
        self.max_num_seqs = 1 << 30  # requests that may decode here; batchers limit admission themselves
        self.layer_pass: LayerPass | None = None
        self.preemptions = 0
        self.prompts_alone, self.order = prompts_alone, order
        self.state: EngineState = _IDLE if loaded else _LOADING
        # The pass in progress: chunks not yet reported, whether residents take part in its first step,
        self._chunks: tuple[Chunk, ...] = ()
        self._decode_first, self.handing_over = True, False
        self._steps_left, self._admitted = -1, 0  # steps that the run may still take, -1: no run; requests
        self.interruptible = False  # whether an arrival should stop it
        self.new_limit: tuple[int, int] | None = None  # since when, requests: see ``limits``
        first = order == "priority"
        self.view = ReplicaView(self.running, self.prefilling, self.waiting, self.ledger, by_priority=first)

    def enqueue(self, request: Request, actions: list[Action]) -> None:
        """Queue a request that was assigned to this replica."""
        assert self.state not in _GONE, "a request was dispatched to a lost or vacant replica"
        progress, waiting = Progress(request, self.order), self.waiting
        if self.state is _IDLE:
            queue_up(waiting, progress)
            self._start_pass(actions)
            return
        # It may begin at the next boundary if it goes before a head that was declined.
        heads = self.state is _RUNNING and would_head(waiting, progress)
        if self._arrival_queue is waiting:
            queue_up(waiting, progress)
        else:
            self.unseen_arrivals.append(progress)
        if self.interruptible or heads:
            self.cut_run(actions)

    def vacate(self) -> None:
        """Leave the GPUs to other replicas; this replica must hold nothing."""
        works = self.layer_pass is not None or self.ledger.holders()
        assert self.state in (_IDLE, _LOADING) and not works, "a replica at work was vacated"
        self.ledger.forget_stored()
        self.state = _VACANT

    def place(self, role: str, loaded: bool) -> None:
        """Take the GPUs (again); the replica serves in ``role`` once it has its parameters."""
        assert self.state is _VACANT, "a replica was placed twice"
        self.state = _IDLE if loaded else _LOADING
        self._arrival_queue = self.unseen_arrivals if self.asynchronous and loaded else self.waiting
        self.view.most_running, self.new_limit = UNLIMITED, None
        self.switch_role(role)

    def switch_role(self, role: str) -> None:
        """Serve in another role from the next pass on."""
        self.hands_over = role == "prefill"

    def handing_over_tokens(self) -> int:
        """Prompt tokens of the current pass that are computed to be handed over."""
        return sum([tokens for _, _, tokens in self._chunks])

    def take(self, requests: Iterable[Request], actions: list[Action]) -> None:
        """Give requests from another queue to this idle replica, to be batched together."""
        assert self.state is _IDLE, "only an idle replica takes more"
        for request in requests:
            queue_up(self.waiting, Progress(request, self.order))
        self._start_pass(actions)

    def join_batch(self, arrived: Sequence[Progress], actions: list[Action], fits: bool = True) -> None:
        """Attach requests with their KV; they decode as soon as possible. fits: all tokens have room."""
        assert self.state not in _GONE, "requests were attached to a lost or vacant replica"
        self.attached += arrived
        if self.state is _IDLE:
            self._start_pass(actions)
        elif self.state is _RUNNING:
            if (
                self._chunks
                or self.layer_pass is not None
                or not self.coalesce
                or self.hands_over
                or not fits
            ):
                self.cut_run(actions)
            else:
                self.joining.append(arrived)
                self._append_join(arrived, actions)

    def cut_run(self, actions: list[Action], stop: Interrupt | None = None) -> None:
        """End the run in progress at its next boundary, or where ``stop`` says."""
        self.interruptible = False
        self.state = _STOPPING
        actions.append(self._stop if stop is None else stop)

    def reserve(self, request: int, tokens: int) -> None:
        """Reserve blocks for a request not attached yet: its KV is in transfer, or computed by layers."""
        self.ledger.reserve(request, tokens)

    def release(self, requests: Iterable[int]) -> None:
        """Free the blocks of requests that are not attached here, or no longer."""
        for request in requests:
            self.ledger.release(request)

    def attach(self, batch: Iterable[Progress], outgoing: bool = False) -> None:
        """Attach requests with their KV, whose blocks are reserved: they decode from the next pass on.

        outgoing: they first wait here until their KV is fetched or complete.
        """
        assert self.state not in _GONE, "requests were attached to a lost or vacant replica"
        if outgoing:
            self.outgoing += batch
        else:
            self.attached += batch

    def detach(self, batch: Iterable[Progress], keeps_kv: bool = False) -> None:
        """Remove outgoing requests with their KV; keeps_kv: their blocks stay reserved."""
        outgoing, ledger = self.outgoing, self.ledger
        for progress in batch:
            if outgoing[0] is progress:
                outgoing.popleft()
            else:  # others wait before it for pieces to be fetched, or for room that it does not need
                outgoing.remove(progress)
            if not keeps_kv:
                ledger.release(progress.id)

    def withdraw(self) -> list[int]:
        """Remove and return the requests that wait and have not begun here, from the head of the queue."""
        gone = list[int]()
        for queue in (self.waiting, self.unseen_arrivals):
            waiting = tuple(queue)
            queue.clear()
            for progress in waiting:
                if progress.was_preempted or progress.moved:
                    queue.append(progress)
                else:
                    gone.append(progress.id)
        return gone

    def run_layers(self, layer_pass: LayerPass, actions: list[Action]) -> None:
        """Run this pass over some layers next, at once if nothing runs."""
        assert self.layer_pass is None, f"replica {self.id} has a pass over some layers already"
        self.layer_pass = layer_pass
        if self.state is _IDLE or self.state is _LOADING:
            self._begin_layers(actions)
        elif self.state is _RUNNING:
            self.cut_run(actions)

    def layers_ran(self) -> None:
        """End that pass: the engine is idle until it gets work or ``freed`` is called."""
        assert self.layer_pass is not None and self.layer_pass.begun, (
            "a replica reports layers that were not requested"
        )
        self.layer_pass = None
        if self.state is not _LOADING:
            self.state = _IDLE

    def _begin_layers(self, actions: list[Action]) -> None:
        """Begin the requested layer pass; nothing else runs."""
        layer_pass = self.layer_pass
        assert layer_pass is not None and not layer_pass.begun
        layer_pass.begun = True
        if self.state is not _LOADING:
            self.state = _RUNNING
        actions.append(layer_pass.run(self.id, self.epoch))

    def freed(self, actions: list[Action]) -> None:
        """Memory was freed outside a pass, or ``layer_pass`` has ended: waiting requests may run now."""
        if self.state is _IDLE and (self.waiting or self.running or self.attached):
            self._start_pass(actions)

    def ready(self, actions: list[Action]) -> None:
        """The parameters are loaded: serve the requests that wait for them or arrived with their KV."""
        if self.state is _LOST:
            return
        assert self.state is _LOADING, "a replica that has its parameters was loaded again"
        self.state = _IDLE if self.layer_pass is None else _RUNNING
        self._arrival_queue = self.unseen_arrivals if self.asynchronous else self.waiting
        if (self.waiting or self.attached) and self.layer_pass is None:
            self._start_pass(actions)

    def ran(self, event: Ran, actions: list[Action]) -> None:
        """Handle the replica's report of a step boundary."""
        if event.epoch < self.epoch:
            return  # from before the replica was lost
        assert event.epoch == self.epoch, "a report from an epoch that has not begun"
        steps = event.steps
        self._steps_left = left = self._steps_left - steps
        assert steps >= 0 and left >= 0, "a replica ran steps that were not requested"
        if event.joins:
            assert not self._chunks, "requests join decode steps"
            steps = self._joined(event.joins, steps)
        finished = event.finished
        if event.steps:
            if self._chunks:
                self._first_step(event)
                steps -= 1
            self.ledger.steps_done += steps
            if self.ended:
                self._release_ended()
            if finished:
                self._finish(finished, self.asynchronous and not event.running)
        else:
            assert not finished, "a request finished without a step"
        if not event.running:
            unseen_arrivals = self.unseen_arrivals
            # Requests that arrived before the last step began are seen now.
            while unseen_arrivals and unseen_arrivals[0].arrival_ns <= event.last_step_ns:
                queue_up(self.waiting, unseen_arrivals.popleft())
            if self.new_limit is not None and self.new_limit[0] <= event.last_step_ns:
                self.view.most_running, self.new_limit = self.new_limit[1], None
            if not self.halts:
                self._start_pass(actions)
        else:
            assert self.running and left, "a run continues without requests"

    def lose(self, actions: list[Action], cause: str) -> list[int]:
        """Lose everything this replica held; returns the requests that fail with it."""
        if self.state is _LOST:
            return []
        self.state = _LOST
        self.epoch += 1
        self._chunks, self.layer_pass = (), None
        self.joining.clear()
        self.leaving.clear()
        self.interruptible = False
        self._release_ended()
        failed = self._remove_all_requests()
        actions.extend(Fail(request, cause) for request in failed)
        return failed

    def _remove_all_requests(self) -> list[int]:
        """Remove all requests of a lost replica; returns them in ascending order."""
        requests = (*self.waiting, *self.unseen_arrivals, *self.outgoing, *self.attached)
        gone = sorted([*self.running, *(progress.id for progress in requests)])
        for request in gone:
            self.ledger.release(request)
        for held in (self.running, self.prefilling, self.waiting, self.unseen_arrivals):
            held.clear()
        self.outgoing.clear()
        self.attached.clear()
        self.ledger.forget_stored()
        return gone

    def _joined(self, joins: tuple[int, ...], steps: int) -> int:
        """Let requests that joined decode; returns the number of steps that the last of them ran in.

        joins: for each ``JoinBatch``, how many steps had run before it; the last may be unread yet.
        """
        before, ledger = 0, self.ledger
        for at, arrived in zip(joins, tuple(self.joining[: len(joins)]), strict=True):
            assert before <= at <= steps, "a request joined outside the steps that are reported"
            ledger.steps_done += at - before
            before = at
            for progress in arrived:
                self.attached.remove(progress)
                self.running[progress.id] = progress
                ledger.start_decoding(progress.id, progress.known_tokens + 1)
        del self.joining[: len(joins)]
        return steps - before

    def _first_step(self, event: Ran) -> None:
        """Record the prompt chunks of a first step; complete prompts decode from the next step on."""
        ledger, running, prefilling = self.ledger, self.running, self.prefilling
        if self._decode_first and ledger.decoding:
            ledger.steps_done += 1
        ended = event.finished if event.steps == 1 else ()
        for request, start, tokens in self._chunks:
            progress = running[request]
            progress.computed = computed = start + tokens
            if computed == progress.known_tokens:
                del prefilling[request]
                if request in ended:
                    continue
                if self.handing_over:
                    self.outgoing.append(running.pop(request))
                else:
                    ledger.start_decoding(request, computed + 1)
        self._chunks = ()

    def _finish(self, finished: tuple[int, ...], late: bool) -> None:
        """Finish requests with all their tokens; ``late``: the next step was chosen before this was known."""
        ledger, running = self.ledger, self.running
        if len(finished) > 1 and ledger.cache is not None:  # in the order in which their blocks are queued
            finished = tuple(sorted(finished, key=lambda member: running[member].number))
        for request in finished:
            assert request not in self.prefilling, "a request finished before its prompt was computed"
            if late:
                ledger.retire(request)
                self.ended.append(request)
            else:
                del running[request]
                ledger.release(request)

    def _release_ended(self) -> None:
        for request in self.ended:
            del self.running[request]
            self.ledger.release(request)
        self.ended.clear()

    def _start_pass(self, actions: list[Action]) -> None:
        """Ask the batcher and apply its answer."""
        self.interruptible = False
        if self.leaving:
            self._let_go(actions)
        if self.attached:
            self._start_attached(actions)
        if self.layer_pass is not None:
            self._begin_layers(actions)
            return
        if not (self.running or self.waiting or self.unseen_arrivals):
            self.state, self._steps_left = _IDLE, -1
            if self.new_limit is not None:
                self.view.most_running, self.new_limit = self.new_limit[1], None
            return
        batch = self._come_back(actions) if self.waiting and self.waiting[0].swapped else None
        batch = batch or chosen(self.batcher, self.view)
        if batch is None or batch.preempt:
            skips = self.lockstep and (batch is not None or bool(self.ended or self.unseen_arrivals))
            batch = self._without_victims(batch, actions) if skips else self._unusual(batch, actions)
            if batch is None and skips:
                self.state, self._chunks, self._steps_left = _RUNNING, (), 1
                actions.append(Run(self.id, self.epoch, (), False, 1, True, "dummy step"))
                return
            # Attached or swapped-out requests may have room now that the victims are out.
            if batch is None and (self.attached or self.host.has_room_back(self.ledger, self.waiting)):
                self._start_pass(actions)
                return
            if batch is None:
                if self.running or (self.waiting and not (self.outgoing or self.ledger.holders())):
                    idle_with_work(self._asked())
                self.state, self._steps_left = _IDLE, -1
                return
        if self.checks:
            check_batch(self._asked(), batch)
        _, chunks, count, decode, max_steps, interruptible, reason = batch
        if chunks:
            self._admit(chunks, count, decode)
        if self.checks:
            check_blocks(self._asked(), batch)
        # One step at a time while the batcher's next answer may change: it has not seen some arrivals or
        # finishes or a limit, or attached requests wait because ``max_num_seqs`` decode.
        late = self.unseen_arrivals or self.attached or (self.ended and (self.waiting or not interruptible))
        if late or self.new_limit or not self.coalesce or self.hands_over or (chunks and self.prompts_alone):
            max_steps, interruptible = 1, False
        self.state = _RUNNING
        self._chunks, self._decode_first, self._steps_left = chunks, decode, max_steps
        self.interruptible = interruptible
        until_finish = not interruptible
        self.handing_over = hands_over = self.hands_over
        actions.append(Run(self.id, self.epoch, chunks, decode, max_steps, until_finish, reason, hands_over))

    def _let_go(self, actions: list[Action]) -> None:
        """Between two passes: remove the requests whose clients went away, with their KV."""
        leaving, ledger = tuple(self.leaving.items()), self.ledger
        self.leaving.clear()
        self._chunks = ()  # a pass that was cut before its first step is chosen anew
        for request, leaver in leaving:
            if request in self.ended:
                continue  # it has finished meanwhile
            progress = self.running.pop(request, None)
            if progress is None:
                # Just computed for a hand-over that has not begun; else it has finished.
                progress = next((one for one in self.outgoing if one.id == request), None)
                if progress is None:
                    continue
                self.outgoing.remove(progress)
                tokens = progress.known_tokens + 1
            elif self.prefilling.pop(request, None) is None:
                tokens = ledger.context_tokens(request)
            else:
                again = progress.was_preempted or progress.moved
                tokens = progress.known_tokens if again else progress.computed
            ledger.release(request)
            actions.append(Abort(request, self.id, tokens, CLIENT_LEFT))
            leaver(self.id, progress)

    def _admit(self, chunks: tuple[Chunk, ...], count: int, decode: bool) -> None:
        """Reserve memory for the chunks; the last ``count`` belong to requests that leave the queue."""
        ledger, prefilling, begun = self.ledger, self.prefilling, len(chunks) - count
        for request, start, tokens in chunks:
            if begun:
                begun -= 1
                progress = prefilling[request]
            else:
                progress = self.waiting.popleft()
                assert progress.id == request, "the queue is admitted in order"
                self.running[request] = prefilling[request] = progress
                if ledger.tracks or (progress.was_preempted and ledger.cache is not None):
                    self._admitted = progress.number = self._admitted + 1
                    progress.computed = start
                    ledger.admit(progress, start, decode)
            assert progress.computed == start, "a chunk starts where the last one ended"
            ledger.reserve(request, start + tokens)

    def _start_attached(self, actions: list[Action]) -> None:
        """Let attached requests decode with the others, at most ``max_num_seqs`` in all.

        The rest stays in ``attached``: an instance that switched to decode may have computed more.
        """
        free = self.max_num_seqs - len(self.running) - len(self.prefilling) + len(self.ended)
        entering = self.attached[: max(0, free)]
        if not entering:
            return
        del self.attached[: len(entering)]
        for progress in entering:
            self.running[progress.id] = progress
            self.ledger.start_decoding(progress.id, progress.known_tokens + 1)
        self._append_join(entering, actions)

    def _come_back(self, actions: list[Action]) -> Batch | None:
        """Let requests with KV in host memory decode again while there is room; no prompt begins."""
        back, took_ns = self.host.give_back(self.ledger, self.waiting, self.max_num_seqs - len(self.running))
        for progress in back:
            self.running[progress.id] = progress
        if not back:
            return None
        ids = tuple([progress.id for progress in back])
        actions.append(JoinBatch(self.id, ids, "back from host memory", None, took_ns))
        return Batch((), (), 0, True, 1, False, "decode with who has come back")

    def _append_join(self, arrived: Sequence[Progress], actions: list[Action]) -> None:
        """Let requests decode from the next boundary on; the next report says which boundary it was."""
        ids = tuple([progress.id for progress in arrived])
        actions.append(JoinBatch(self.id, ids, "their KV has come"))

    def _asked(self) -> BatchQuestion:
        """What a batcher's answer is checked against."""
        return BatchQuestion(self.id, self.batcher, self.running, self.prefilling, self.waiting, self.ledger)

    def _unusual(self, batch: Batch | None, actions: list[Action]) -> Batch | None:
        """Remove the victims; if nothing is left to run, choose again with all arrivals and finishes seen."""
        batch = self._without_victims(batch, actions)
        if batch is None and (self.ended or self.unseen_arrivals):
            self._release_ended()
            while self.unseen_arrivals:
                queue_up(self.waiting, self.unseen_arrivals.popleft())
            batch = self._without_victims(chosen(self.batcher, self.view), actions)
        if batch is None and self.waiting and not (self.outgoing or self.ledger.holders()):
            # The last running request was preempted, so all memory is free: it is admitted again at once.
            batch = self._without_victims(chosen(self.batcher, self.view), actions)
        return batch

    def _without_victims(self, batch: Batch | None, actions: list[Action]) -> Batch | None:
        """Preempt the batch's victims; returns None if nothing can run without them."""
        if batch is not None and batch.preempt:
            check_victims(self._asked(), batch)
            self._preempt(batch.preempt, actions)
            if not batch.chunks and not self.ledger.decoding:
                return None
        return batch

    def _preempt(self, victims: tuple[int, ...], actions: list[Action]) -> None:
        """Preempt requests: they lose their KV and wait before others of their priority, oldest first."""
        for request in victims:
            progress = self.running.pop(request)
            if request in self.ended:
                self.ended.remove(request)
                self.ledger.preempt(request, 0)  # what its last step stored is not known yet
                continue
            decoded = self.prefilling.pop(request, None) is None
            swap_ns = take_kv(self.ledger, self.host, progress, decoded, int(self.asynchronous))
            queue_first(self.waiting, progress)
            self.preemptions += 1
            actions.append(Preempt(self.id, request, "no free KV block", swap_ns))
