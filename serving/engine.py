"""The engine of one replica: its queue, its running set and its KV memory, as a state machine.

It applies what a batcher chooses and does not know which batcher that is. States and events:

| state    | enqueue                    | ran                        | ready         | lost          |
|----------|----------------------------|----------------------------|---------------|---------------|
| idle     | queue, choose a pass       | refused: nothing was asked | refused       | fail everyone |
| running  | queue; maybe interrupt     | account; maybe choose      | refused       | fail everyone |
| stopping | queue                      | account; maybe choose      | refused       | fail everyone |
| lost     | refused: the door knows    | ignored: an old epoch      | ignored       | ignored       |
| loading  | queue                      | refused: nothing was asked | choose a pass | fail everyone |

An arrival interrupts a run if it may change it; a pass is chosen after a report unless the run goes on.

Under asynchronous scheduling a step is chosen while the one before it runs. So what happens during a step
(an arrival, a finish) counts only from the second boundary after it: newcomers wait at the door, and those
who have finished keep seat and memory, for one step more. When nothing else can run, both count at once.
"""

from collections import deque
from enum import IntEnum

from serving.actions import Action, Chunk, Fail, Interrupt, Preempt, Run
from serving.batch import Batch, Batcher, ReplicaView
from serving.events import Ran
from serving.kv_ledger import KvLedger
from serving.replica import Replica
from serving.request import Request


class EngineState(IntEnum):
    """Where the replica stands between two facts."""

    IDLE = 0
    RUNNING = 1
    STOPPING = 2
    LOST = 3
    LOADING = 4


# On Python 3.11 every look-up through the class costs as much as the rest of a short method.
_IDLE, _RUNNING, _STOPPING, _LOST, _LOADING = EngineState


class Progress:
    """How far one request is; ``known_tokens`` (prompt and generated) stands still while it decodes.

    ``comes_back``: it was here before, and something of it may still be stored.
    """

    __slots__ = ("arrival_ns", "comes_back", "computed", "id", "known_tokens")

    def __init__(self, request: Request) -> None:
        self.id = request.id
        self.arrival_ns = request.arrival_ns
        self.known_tokens = request.prompt_tokens
        self.computed = 0
        self.comes_back = False


class Engine:
    """One replica's queue, batch and memory."""

    __slots__ = (
        "_chunks",
        "_decode_first",
        "_interruptible",
        "_newcomers",
        "_steps_left",
        "_stop",
        "asynchronous",
        "batcher",
        "coalesce",
        "door",
        "ended",
        "epoch",
        "id",
        "ledger",
        "preemptions",
        "prefilling",
        "replica",
        "running",
        "state",
        "view",
        "waiting",
    )

    def __init__(
        self,
        replica: Replica,
        batcher: Batcher,
        coalesce: bool = True,
        asynchronous: bool = False,
        loaded: bool = True,
    ) -> None:
        self.id = replica.id
        self.replica = replica
        self.batcher = batcher
        self.coalesce = coalesce
        self.asynchronous = asynchronous
        self.epoch = 0
        self.ledger = KvLedger(
            replica.kv_blocks, replica.block_tokens, replica.watermark_blocks, replica.prefix_caching
        )
        self.waiting: deque[Progress] = deque()
        # Asynchronous scheduling: those who came and those who finished since the last choice was made.
        self.door: deque[Progress] = deque()
        self.ended: list[int] = []
        self._newcomers = self.door if asynchronous and loaded else self.waiting
        self._stop = Interrupt(replica.id, "arrival", int(asynchronous))
        self.running: dict[int, Progress] = {}
        self.prefilling: dict[int, Progress] = {}
        self.preemptions = 0
        self.state: EngineState = _IDLE if loaded else _LOADING
        # The pass in progress: chunks not yet reported, whether residents take part in its first step, steps
        # it may still run, and whether an arrival should stop it.
        self._chunks: tuple[Chunk, ...] = ()
        self._decode_first = True
        self._steps_left = -1  # while nothing runs
        self._interruptible = False
        self.view = ReplicaView(self.running, self.prefilling, self.waiting, self.ledger)

    def enqueue(self, request: Request, actions: list[Action]) -> None:
        """A request was assigned to this replica."""
        assert self.state is not _LOST, "the front door dispatched to a lost replica"
        if self.state is _IDLE:
            self.waiting.append(Progress(request))
            self._start_pass(actions)
            return
        self._newcomers.append(Progress(request))
        if self._interruptible:
            self._interruptible = False
            self.state = _STOPPING
            actions.append(self._stop)

    def ready(self, actions: list[Action]) -> None:
        """All parameters are there: serve who has waited for them."""
        if self.state is _LOST:
            return
        assert self.state is _LOADING, "a replica that has its parameters was loaded again"
        self.state = _IDLE
        self._newcomers = self.door if self.asynchronous else self.waiting
        if self.waiting:
            self._start_pass(actions)

    def ran(self, event: Ran, actions: list[Action]) -> None:
        """The replica reports a step boundary."""
        if event.epoch < self.epoch:
            return  # from before the replica was lost
        assert event.epoch == self.epoch, "a report from an epoch that has not begun"
        steps = event.steps
        self._steps_left -= steps
        assert steps >= 0 and self._steps_left >= 0, "a replica ran what nobody asked for"
        if steps:
            if self._chunks:
                self._first_step(event)
                steps -= 1
            self.ledger.steps_done += steps
            if self.ended:
                self._release_ended()
            if event.finished:
                self._finish(event.finished, self.asynchronous and not event.running)
        else:
            assert not event.finished, "a request finished without a step"
        if not event.running:
            door = self.door
            # Those who came before the last step began are seen now.
            while door and door[0].arrival_ns <= event.last_step_ns:
                self.waiting.append(door.popleft())
            self._start_pass(actions)
        else:
            assert self.running and self._steps_left, "a run goes on with nobody in it"

    def lose(self, actions: list[Action], cause: str) -> list[int]:
        """Everything this replica held is gone; returns the requests that fail with it."""
        if self.state is _LOST:
            return []
        self.state = _LOST
        self.epoch += 1
        self._release_ended()
        failed = sorted([*self.running, *(progress.id for progress in (*self.waiting, *self.door))])
        for request in self.running:
            self.ledger.release(request)
        for progress in self.waiting:
            self.ledger.forget(progress.id)
        self.running.clear()
        self.prefilling.clear()
        self.waiting.clear()
        self.door.clear()
        self._chunks = ()
        self._interruptible = False
        actions.extend(Fail(request, cause) for request in failed)
        return failed

    def _first_step(self, event: Ran) -> None:
        """Prompt chunks are in the KV cache; a whole prompt decodes from the next step on."""
        ledger = self.ledger
        if self._decode_first and ledger.decoding:
            ledger.steps_done += 1
        ended = event.finished if event.steps == 1 else ()
        for request, start, tokens in self._chunks:
            progress = self.running[request]
            progress.computed = computed = start + tokens
            if computed == progress.known_tokens:
                del self.prefilling[request]
                if request not in ended:
                    ledger.start_decoding(request, computed + 1)
        self._chunks = ()

    def _finish(self, finished: tuple[int, ...], late: bool) -> None:
        """Requests have all their tokens; ``late``: the next step is chosen without knowing that."""
        ledger, running = self.ledger, self.running
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
        self._interruptible = False
        batch = self.batcher.choose(self.view)
        if batch is None or batch.preempt:
            batch = self._unusual(batch, actions)
            if batch is None:
                assert not self.running and not self.waiting, "a batcher left work lying"
                self.state = _IDLE
                self._steps_left = -1
                return
        _, chunks, admit, decode, max_steps, interruptible, reason = batch
        if chunks:
            self._admit(chunks, admit)
        # What is known one step too late may change the next choice.
        late = self.door or (self.ended and (self.waiting or not interruptible))
        if late or not self.coalesce:
            max_steps, interruptible = 1, False
        self.state = _RUNNING
        self._chunks, self._decode_first, self._steps_left = chunks, decode, max_steps
        self._interruptible = interruptible
        until_finish = not interruptible
        actions.append(Run(self.id, self.epoch, chunks, decode, max_steps, until_finish, reason))

    def _unusual(self, batch: Batch | None, actions: list[Action]) -> Batch | None:
        """Take out the victims; when nothing is left that could run, choose again with all that is known."""
        batch = self._without_victims(batch, actions)
        if batch is None and (self.ended or self.door):
            self._release_ended()
            self.waiting.extend(self.door)
            self.door.clear()
            batch = self._without_victims(self.batcher.choose(self.view), actions)
        return batch

    def _without_victims(self, batch: Batch | None, actions: list[Action]) -> Batch | None:
        """The batch, None when its victims leave nobody to run."""
        if batch is not None and batch.preempt:
            self._preempt(batch.preempt, actions)
            if not batch.chunks and not self.ledger.decoding:
                return None
        return batch

    def _admit(self, chunks: tuple[Chunk, ...], admit: int) -> None:
        """Reserve memory for the chunks and move admitted requests from the queue to the running set."""
        ledger = self.ledger
        if admit:
            for request, start, _ in chunks[-admit:]:
                progress = self.waiting.popleft()
                assert progress.id == request, "the queue is admitted in order"
                self.running[request] = self.prefilling[request] = progress
                if progress.comes_back:
                    progress.computed = start
                    ledger.resume(request, start)
        for request, start, tokens in chunks:
            assert self.prefilling[request].computed == start
            ledger.reserve(request, start + tokens)

    def _preempt(self, victims: tuple[int, ...], actions: list[Action]) -> None:
        """Drop the victims' KV and put them at the head of the queue, so that the oldest comes first."""
        for request in victims:
            progress = self.running.pop(request)
            if request in self.ended:
                self.ended.remove(request)
                self.ledger.release(request)
                continue
            stored = progress.computed
            if self.prefilling.pop(request, None) is None:
                context = self.ledger.context_tokens(request)
                # vLLM hashes the last position only when its step's output is known (async_scheduler.py).
                stored = max(progress.known_tokens, context - 1 - self.asynchronous)
                progress.known_tokens = context
            progress.computed = 0
            progress.comes_back = True
            self.ledger.preempt(request, stored)
            self.waiting.appendleft(progress)
            self.preemptions += 1
            actions.append(Preempt(self.replica.id, request, "no free KV block"))
